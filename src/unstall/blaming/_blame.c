/* Follows the driver's calls through CUPTI for _marks.c: work before it is put on a stream, errors when they are returned.

   CUPTI is asked for callbacks only, not for activity records. Marks are made by cuStreamWriteValue32 in the callback
   before the work; the slots are pinned for the device there, too, once. */

#include "_agent.h"
#include "_marks.h"

#include "../cupti/_callbacks.h"
#include "../lines/_clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static Callbacks cupti;

static const Symbol symbols[] = {CALLBACKS_SYMBOLS(cupti)};

static struct {
    void *library;
    int (*StreamWriteValue32)(void *, uint64_t, uint32_t, unsigned);
    int (*StreamSynchronize)(void *);
    int (*MemHostRegister)(void *, size_t, unsigned);
    int (*MemHostUnregister)(void *);
    int (*MemHostGetDevicePointer)(uint64_t *, void *, unsigned);
    int (*MemHostAlloc)(void **, size_t, unsigned);
    int (*MemFreeHost)(void *);
    int (*CaptureInfo)(void *, int *, uint64_t *, void *, void *, void *);
    int (*ExchangeCaptureMode)(int *);
    int (*StreamCreate)(void **, unsigned);
    int (*StreamDestroy)(void *);
    int (*StreamBeginCapture)(void *, int);
    int (*StreamEndCapture)(void *, void **);
    int (*GraphDestroy)(void *);
    int (*CtxGetCurrent)(void **);
    int (*CtxPushCurrent)(void *);
    int (*CtxPopCurrent)(void **);
    int (*StreamQuery)(void *);
    int (*PrimaryState)(int, unsigned *, int *);
} cuda;

static const Symbol driver_symbols[] = {
    {"cuStreamWriteValue32_v2", &cuda.StreamWriteValue32}, {"cuStreamSynchronize", &cuda.StreamSynchronize},
    {"cuMemHostRegister_v2", &cuda.MemHostRegister},       {"cuMemHostUnregister", &cuda.MemHostUnregister},
    {"cuMemHostGetDevicePointer_v2", &cuda.MemHostGetDevicePointer}, {"cuMemHostAlloc", &cuda.MemHostAlloc},
    {"cuStreamGetCaptureInfo_v2", &cuda.CaptureInfo},      {"cuThreadExchangeStreamCaptureMode", &cuda.ExchangeCaptureMode},
    {"cuStreamCreate", &cuda.StreamCreate},                {"cuStreamDestroy_v2", &cuda.StreamDestroy},
    {"cuStreamBeginCapture_v2", &cuda.StreamBeginCapture}, {"cuStreamEndCapture", &cuda.StreamEndCapture},
    {"cuGraphDestroy", &cuda.GraphDestroy},                {"cuCtxGetCurrent", &cuda.CtxGetCurrent},
    {"cuCtxPushCurrent_v2", &cuda.CtxPushCurrent},         {"cuCtxPopCurrent_v2", &cuda.CtxPopCurrent},
    {"cuStreamQuery", &cuda.StreamQuery},                  {"cuMemFreeHost", &cuda.MemFreeHost},
    {"cuDevicePrimaryCtxGetState", &cuda.PrimaryState},
};

/* Where a call's stream and event stand in its parameters, in bytes (generated_cuda_meta.h). */
enum { NO_STREAM = 255, IN_CONFIG = 254, NONE = 255 };
enum { BATCH = 255 }; /* several values to wait for and to write, each of which gets an entry */

static const struct {
    uint16_t id, per_thread_id; /* the call's, and that of its _ptsz or _ptds; 0: none */
    uint8_t kind, stream, event;
} work_calls[] = {
    {307, 442, KERNEL, 40, NONE},        /* cuLaunchKernel */
    {652, 653, KERNEL, IN_CONFIG, NONE}, /* cuLaunchKernelEx */
    {477, 478, KERNEL, 40, NONE},        /* cuLaunchCooperativeKernel */
    {514, 515, GRAPH, 8, NONE},          /* cuGraphLaunch */
    {277, 421, COPY, 24, NONE}, {279, 422, COPY, 24, NONE}, {281, 423, COPY, 24, NONE}, /* HtoD, DtoH, DtoD, async */
    {306, 418, COPY, 24, NONE},                              /* cuMemcpyAsync */
    {289, 424, COPY, 8, NONE},  {291, 425, COPY, 8, NONE},   /* 2D, 3D */
    {319, 426, COPY, 40, NONE}, {321, 427, COPY, 8, NONE},   /* Peer, 3DPeer */
    {776, 777, COPY, 64, NONE}, {796, 797, COPY, 56, NONE}, {837, 838, COPY, 32, NONE}, /* Batch, WithAttributes */
    {276, 397, COPY, NO_STREAM, NONE}, {278, 398, COPY, NO_STREAM, NONE}, {280, 399, COPY, NO_STREAM, NONE},
    {305, 408, COPY, NO_STREAM, NONE}, {287, 405, COPY, NO_STREAM, NONE}, {288, 406, COPY, NO_STREAM, NONE},
    {290, 407, COPY, NO_STREAM, NONE},
    {216, 428, MEMSET, 24, NONE}, {218, 429, MEMSET, 24, NONE}, {220, 430, MEMSET, 24, NONE},
    {222, 431, MEMSET, 40, NONE}, {224, 432, MEMSET, 40, NONE}, {226, 433, MEMSET, 40, NONE},
    {249, 411, MEMSET, NO_STREAM, NONE}, {250, 412, MEMSET, NO_STREAM, NONE}, {251, 413, MEMSET, NO_STREAM, NONE},
    {119, 441, RECORD, 8, 0},     {587, 588, RECORD, 8, 0},  /* cuEventRecord, WithFlags */
    {295, 436, WAIT, 0, 8},                                  /* cuStreamWaitEvent */
    {458, 459, WAIT_VALUE, 0, 8}, {659, 660, WAIT_VALUE, 0, 8},   /* cuStreamWaitValue32, and _v2 */
    {473, 474, WAIT_VALUE, 0, 8}, {661, 662, WAIT_VALUE, 0, 8},   /* 64 */
    {460, 461, WRITE_VALUE, 0, 8}, {663, 664, WRITE_VALUE, 0, 8}, /* cuStreamWriteValue32, and _v2 */
    {475, 476, WRITE_VALUE, 0, 8}, {665, 666, WRITE_VALUE, 0, 8}, /* 64 */
    {462, 463, BATCH, 0, NONE},    {667, 668, BATCH, 0, NONE},    /* cuStreamBatchMemOp, and _v2 */
};

/* Calls of memory, whose errors are seen besides those of work. */
static const uint16_t other_calls[] = {243, 244, 245, 33, 38, 39, 294, 371, 549, 550, 551, 552};

/* Calls that return 0 when work is done. */
enum { STREAM_DONE = 1, CONTEXT_DONE, EVENT_DONE };

static const struct {
    uint16_t id;
    uint8_t what, per_thread;
} done_calls[] = {
    {125, STREAM_DONE, 0}, {439, STREAM_DONE, 1}, {126, STREAM_DONE, 0}, {440, STREAM_DONE, 1},
    {17, CONTEXT_DONE, 0}, {800, CONTEXT_DONE, 0}, {120, EVENT_DONE, 0}, {121, EVENT_DONE, 0},
};

enum { BEGIN_CAPTURE = 1, END_CAPTURE };

static const struct {
    uint16_t id;
    uint8_t what, per_thread;
} capture_calls[] = {
    {495, BEGIN_CAPTURE, 0}, {496, BEGIN_CAPTURE, 1}, {539, BEGIN_CAPTURE, 0}, {540, BEGIN_CAPTURE, 1},
    {720, BEGIN_CAPTURE, 0}, {721, BEGIN_CAPTURE, 1}, {497, END_CAPTURE, 0},   {498, END_CAPTURE, 1},
};

/* Calls that destroy the stream or the context that is their parameter, or a device's primary context; that one only if
   nobody else retains it. */
enum { STREAM_GONE = 1, CONTEXT_GONE, PRIMARY_GONE, PRIMARY_RELEASED };

static const struct {
    uint16_t id;
    uint8_t what;
} gone_calls[] = {
    {127, STREAM_GONE},  {326, STREAM_GONE},  {11, CONTEXT_GONE},  {322, CONTEXT_GONE},
    {389, PRIMARY_GONE}, {545, PRIMARY_GONE}, {387, PRIMARY_RELEASED}, {544, PRIMARY_RELEASED},
};

enum { MOST_CALLS = 1024, LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

static const uint16_t unload_calls[] = {22, 680}; /* cuModuleUnload, cuLibraryUnload */

static struct {
    uint8_t work, per_thread, capture, done, gone, unload; /* work: 1 + the row of work_calls */
} calls[MOST_CALLS]; /* by callback id */

static void *subscriber;
static _Atomic int detach_wanted; /* the thread that sets it to 0 finalizes CUPTI, so that it happens once */
static _Atomic int capturing;     /* captures under way */
static __thread int busy;         /* in a callback: our own calls of the driver are not followed */
static __thread struct {
    Work work;
    int wanted;
} to_wait;
static __thread int in_capture;   /* whether the stream of the call that ends a capture was in one before it */
static __thread uint64_t next_before; /* the number of the next entry when a call began that waits */

static struct {
    pthread_mutex_t lock;
    int state; /* 0: not tried, 1: pinned, -1: not possible */
    int registered, error;
    void *host, *instead; /* instead: memory of the driver's, if the map cannot be pinned; copied to it after an error */
    uint64_t device, bytes;
    void *context;     /* which `instead` belongs to */
    int being_released; /* calls under way that may free `instead`; under agent_hold() */
} slots = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Set by the program's threads that wait for a backward pass; autograd's own have no Python frames. */
static _Atomic int32_t backward_stack = NO_PYTHON;

/* An error that leaves the context unusable, so that every later call returns it. */
static int
is_sticky(int result)
{
    switch (result) {
    case 214: case 220: case 226: case 700: case 702: case 710: case 714: case 715: case 716: case 717: case 718:
    case 719: case 721:
        return 1;
    default:
        return 0;
    }
}

enum { MEMORY_PORTABLE_MAPPED = 3 };

/* Lets the device write to the slots. In relaxed mode, since a capture may be under way. */
static int
pin_slots(void)
{
    pthread_mutex_lock(&slots.lock);
    if (!slots.state) {
        int mode = 2, exchanged = cuda.ExchangeCaptureMode(&mode);
        slots.host = marks_slots(&slots.bytes);
        slots.error = slots.host ? cuda.MemHostRegister(slots.host, slots.bytes, MEMORY_PORTABLE_MAPPED) : -1;
        slots.registered = !slots.error;
        void *at = slots.host;
        if (slots.error && slots.host) {
            slots.error = cuda.MemHostAlloc(&slots.instead, slots.bytes, MEMORY_PORTABLE_MAPPED);
            at = slots.instead = slots.error ? NULL : slots.instead;
            cuda.CtxGetCurrent(&slots.context);
        }
        if (!slots.error) {
            memset(at, 0, slots.bytes);
            slots.error = cuda.MemHostGetDevicePointer(&slots.device, at, 0);
        }
        slots.state = slots.error ? -1 : 1;
        marks_note(PINNED_BY, slots.error ? REFUSED + (uint32_t)slots.error : slots.instead ? 2 : 1);
        if (!exchanged) {
            cuda.ExchangeCaptureMode(&mode);
        }
    }
    int result = slots.state > 0 ? 0 : slots.error;
    pthread_mutex_unlock(&slots.lock);
    return result;
}

/* Once a context is dead, the device writes no more. Under agent_hold(): the memory may go with its context. */
static void
keep_slots(void)
{
    uint64_t bytes;
    void *map = marks_slots(&bytes);
    if (slots.instead && map && !slots.being_released) {
        memcpy(map, slots.instead, bytes);
    }
}

enum { CONTEXT_IS_DESTROYED = 709 };

/* Under agent_hold(): the driver frees its memory with the context, so there are no slots any more. */
static void
forget_slots(void)
{
    if (slots.instead) {
        slots.state = -1;
        slots.error = CONTEXT_IS_DESTROYED;
        slots.instead = NULL;
    }
}

static int
write_on_device(uint64_t stream, uint32_t slot, uint32_t value)
{
    if (slots.state <= 0 && pin_slots()) {
        return slots.error;
    }
    return cuda.StreamWriteValue32((void *)(uintptr_t)stream, slots.device + 4 * (uint64_t)slot, value, 0);
}

static int
wait_for_stream(uint64_t stream)
{
    return cuda.StreamSynchronize((void *)(uintptr_t)stream);
}

/* Asks whether a stream of this context is done, from any thread. Returns the CUresult. */
static int
query(void *context, uint64_t stream)
{
    busy = 1;
    int mode = 2, exchanged = cuda.ExchangeCaptureMode(&mode), pushed = cuda.CtxPushCurrent(context);
    int result = pushed ? pushed : cuda.StreamQuery((void *)(uintptr_t)stream);
    if (!pushed) {
        cuda.CtxPopCurrent(&context);
    }
    if (!exchanged) {
        cuda.ExchangeCaptureMode(&mode);
    }
    busy = 0;
    return result;
}

/* What the agent asks. A query of a stream that is captured would end the capture. After an error nothing is known of
   captures any more, and the driver knows no more than the error. */
static int
query_for_agent(uint64_t context, uint64_t stream)
{
    return !subscriber || !marks_on() || capturing ? NOT_ASKED : query((void *)(uintptr_t)context, stream);
}

static uint32_t
written_by_device(uint32_t slot)
{
    const volatile uint32_t *at = slots.instead ? slots.instead : slots.host;
    return slots.state > 0 ? at[slot] : 0;
}

static int capture_tried; /* since open() */

/* Tries a mark in a capture of our own: in one of the program's, a refusal would end that. Notes 1 or REFUSED_CAPTURES. */
static void
try_capture(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!capture_tried) {
        capture_tried = 1;
        int mode = 2, works = 0, exchanged = cuda.ExchangeCaptureMode(&mode);
        void *stream = NULL, *graph = NULL;
        if (!pin_slots() && !cuda.StreamCreate(&stream, 1)) {
            if (!cuda.StreamBeginCapture(stream, 2)) {
                works = !write_on_device((uint64_t)(uintptr_t)stream, 0, 0);
                works &= !cuda.StreamEndCapture(stream, &graph);
            }
            if (graph) {
                cuda.GraphDestroy(graph);
            }
            cuda.StreamDestroy(stream);
        }
        if (!exchanged) {
            cuda.ExchangeCaptureMode(&mode);
        }
        marks_note(CAPTURES, works ? 1 : REFUSED_CAPTURES);
    }
    pthread_mutex_unlock(&lock);
}

static uint64_t
pointer_in(const void *parameters, size_t offset)
{
    uint64_t pointer;
    memcpy(&pointer, (const char *)parameters + offset, sizeof pointer);
    return pointer;
}

enum { NO_CAPTURE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED }; /* an invalidated one is under way until it is ended */

static int
capture_status(uint64_t stream, uint64_t *id)
{
    int status = NO_CAPTURE;
    if (stream == 0 || stream == LEGACY_STREAM ||
        cuda.CaptureInfo((void *)(uintptr_t)stream, &status, id, NULL, NULL, NULL)) {
        return NO_CAPTURE;
    }
    return status;
}

static uint64_t
capture_of(uint64_t stream)
{
    uint64_t id = 0;
    return capture_status(stream, &id) == CAPTURE_ACTIVE ? id : 0;
}

/* Whether the stream is in a capture that a call which ends one was told to end. */
static int
is_captured(uint32_t id, const CallbackData *data)
{
    uint64_t stream = pointer_in(data->parameters, 0), capture;
    return capture_status(stream || !calls[id].per_thread ? stream : PER_THREAD_STREAM, &capture) != NO_CAPTURE;
}

/* Captures that began before they were followed are not counted. */
static void
capture_ended(void)
{
    int before = capturing;
    while (before > 0 && !atomic_compare_exchange_weak(&capturing, &before, before - 1)) {
    }
}

static uint64_t
stream_in(const CallbackData *data, uint32_t id)
{
    int row = calls[id].work - 1;
    uint8_t at = work_calls[row].stream;
    uint64_t stream = at == NO_STREAM ? 0
                      : at == IN_CONFIG ? pointer_in((const void *)(uintptr_t)pointer_in(data->parameters, 0), 32)
                                        : pointer_in(data->parameters, at);
    return stream ? stream : calls[id].per_thread ? PER_THREAD_STREAM : 0;
}

static uint32_t
thread_id(void)
{
    static __thread uint32_t id;
    return id ? id : (id = (uint32_t)syscall(SYS_gettid));
}

/* An operation: its kind at 0, its address at 8, its value at 16. */
enum { BATCH_COUNT_AT = 8, BATCH_AT = 16, BATCH_BYTES = 48, MOST_IN_BATCH = 256 };

static void
note_batch(Work *work, const void *parameters)
{
    uint32_t count = (uint32_t)pointer_in(parameters, BATCH_COUNT_AT);
    const char *operations = (const char *)(uintptr_t)pointer_in(parameters, BATCH_AT);
    for (uint32_t i = 0; i < count && i < MOST_IN_BATCH; i++) {
        const char *at = operations + (size_t)i * BATCH_BYTES;
        uint32_t kind = (uint32_t)pointer_in(at, 0);
        if (kind == 1 || kind == 2 || kind == 4 || kind == 5) { /* wait, write; wait, write 64 bits */
            work->kind = kind % 3 == 1 ? WAIT_VALUE : WRITE_VALUE;
            work->event = pointer_in(at, 8);
            work->value = (uint32_t)pointer_in(at, 16);
            marks_work(work);
        }
    }
}

static void
begin_work(uint32_t id, const CallbackData *data)
{
    int row = calls[id].work - 1, kind = work_calls[row].kind;
    uint64_t stream = stream_in(data, id);
    Work work = {
        .kind = (uint32_t)kind, .context = (uint64_t)(uintptr_t)data->context,
        .stream = stream == LEGACY_STREAM ? 0 : stream,
        .per_thread = stream == PER_THREAD_STREAM ? thread_id() : 0,
        .event = work_calls[row].event == NONE ? 0 : pointer_in(data->parameters, work_calls[row].event),
        .value = kind == WAIT_VALUE || kind == WRITE_VALUE ? (uint32_t)pointer_in(data->parameters, 16) : 0,
        .capture = capturing ? capture_of(stream) : 0,
        .symbol = kind == KERNEL ? data->symbol : NULL,
        .stack = frames_here_all(), .thread = thread_id(), .time = now(),
    };
    if (work.stack < 0) {
        work.stack = backward_stack;
        work.backward = work.stack >= 0;
    }
    if (work.capture) {
        try_capture();
    }
    if (work.kind == BATCH) {
        note_batch(&work, data->parameters);
        return;
    }
    to_wait.wanted = marks_work(&work) && !capturing; /* a wait would end captures of other streams */
    if (to_wait.wanted) {
        to_wait.work = work;
    }
}

static PyObject *on_error; /* called once, at the call that returned the error */

static void
tell_of_error(void)
{
    if (!Py_IsInitialized()) {
        return;
    }
    PyGILState_STATE held = PyGILState_Ensure();
    PyObject *type, *value, *traceback; /* the caller may be about to raise */
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = PyObject_CallFunctionObjArgs(on_error, NULL);
    if (!result) {
        PyErr_Clear();
    }
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(held);
}

static void
note_done(uint32_t id, const CallbackData *data)
{
    uint64_t context = (uint64_t)(uintptr_t)data->context;
    if (calls[id].done == CONTEXT_DONE) {
        marks_stream_done(context, 0, 0, 1, next_before);
        return;
    }
    uint64_t handle = pointer_in(data->parameters, 0);
    if (calls[id].done == EVENT_DONE) {
        marks_event_done(handle);
        return;
    }
    handle = handle || !calls[id].per_thread ? handle : PER_THREAD_STREAM;
    marks_stream_done(context, handle == LEGACY_STREAM ? 0 : handle, handle == PER_THREAD_STREAM ? thread_id() : 0, 0,
                      next_before);
}

static void
end_call(uint32_t id, const CallbackData *data)
{
    int result = 0;
    if (to_wait.wanted && calls[id].work) {
        to_wait.wanted = 0;
        result = marks_wait(&to_wait.work);
    }
    if (!is_sticky(result) && data->result) {
        memcpy(&result, data->result, sizeof result);
    }
    if (is_sticky(result) && marks_error(result, id, frames_here_all(), thread_id(), now())) {
        agent_hold();
        keep_slots();
        agent_release();
        if (on_error) {
            tell_of_error();
        }
    }
    if (calls[id].done && !result) {
        note_done(id, data);
    }
    if (calls[id].capture == BEGIN_CAPTURE && result) {
        capture_ended();
    }
    else if (calls[id].capture == END_CAPTURE && in_capture && !is_captured(id, data)) { /* it may fail, and end it */
        capture_ended();
    }
}

static void
begin_destroying(uint32_t id, const CallbackData *data)
{
    int what = calls[id].gone;
    uint64_t handle = what < PRIMARY_GONE ? pointer_in(data->parameters, 0) : 0;
    agent_hold();
    keep_slots();
    if (what == STREAM_GONE) {
        marks_gone(0, handle, 0); /* the context that is current may be another than the stream's */
    }
    else {
        marks_gone(handle, 0, 1);
    }
    if (what == PRIMARY_GONE || (what == CONTEXT_GONE && handle == (uint64_t)(uintptr_t)slots.context)) {
        forget_slots();
    }
    slots.being_released += what == PRIMARY_RELEASED;
    agent_release();
}

static void
end_releasing(const CallbackData *data)
{
    int device, is_there = 0;
    unsigned flags;
    memcpy(&device, data->parameters, sizeof device);
    agent_hold();
    if (cuda.PrimaryState(device, &flags, &is_there) || !is_there) {
        forget_slots();
    }
    slots.being_released -= slots.being_released > 0;
    agent_release();
}

static void
finalize_once(void)
{
    if (atomic_exchange(&detach_wanted, 0)) {
        cupti.Finalize();
    }
}

static void
around_call(void *nothing, int domain, uint32_t id, const CallbackData *data)
{
    (void)nothing, (void)domain;
    if (data->site != ENTER && detach_wanted) {
        finalize_once();
    }
    else if (!busy && id < MOST_CALLS && calls[id].gone) { /* after an error, too: the agent goes on */
        busy = 1;
        if (data->site == ENTER) {
            begin_destroying(id, data);
        }
        else if (calls[id].gone == PRIMARY_RELEASED) {
            end_releasing(data);
        }
        if (data->site != ENTER && marks_on()) {
            end_call(id, data);
        }
        busy = 0;
    }
    else if (!busy && marks_on() && id < MOST_CALLS) {
        busy = 1;
        if (calls[id].unload) { /* before and after it: another thread may launch meanwhile */
            marks_unloaded();
        }
        if (data->site != ENTER) {
            end_call(id, data);
        }
        else if (calls[id].work) {
            begin_work(id, data);
        }
        else if (calls[id].done) {
            next_before = marks_next();
        }
        else if (calls[id].capture == BEGIN_CAPTURE) {
            agent_hold();
            capturing++; /* until its end, or if it fails */
            agent_release();
        }
        else if (calls[id].capture == END_CAPTURE) {
            uint64_t stream = pointer_in(data->parameters, 0), capture = capture_of(stream);
            in_capture = is_captured(id, data);
            if (capture) {
                marks_end_capture((uint64_t)(uintptr_t)data->context, stream, capture);
            }
        }
        busy = 0;
    }
}

PyDoc_STRVAR(load_doc, "load(path) -> None\n\nLoad libcupti, and find the driver's functions. Raises OSError.");

static PyObject *
load(PyObject *self, PyObject *argument)
{
    (void)self;
    PyObject *path = NULL;
    if (cupti.library && cuda.library) {
        Py_RETURN_NONE;
    }
    if (!PyUnicode_FSConverter(argument, &path)) {
        return NULL;
    }
    void *library = load_library(PyBytes_AsString(path), symbols, sizeof symbols / sizeof *symbols);
    Py_DECREF(path);
    if (!library) {
        return NULL;
    }
    void *driver = load_library("libcuda.so.1", driver_symbols, sizeof driver_symbols / sizeof *driver_symbols);
    if (!driver) {
        return NULL;
    }
    cupti.library = library;
    cuda.library = driver;
    Py_RETURN_NONE;
}

static void
forked(void)
{
    marks_forked();
    frames_forked();
    pthread_mutex_init(&slots.lock, NULL);
    agent_forked();
    detach_wanted = capturing = slots.being_released = 0;
    subscriber = NULL;
}

static void
watch_forks(void)
{
    static int watched; /* under the GIL */
    if (!watched) {
        pthread_atfork(NULL, NULL, forked);
        watched = 1;
    }
}

static PyObject *test_write; /* a test's device, which writes to the file */

static int
write_in_test(uint64_t stream, uint32_t slot, uint32_t value)
{
    PyObject *result = PyObject_CallFunction(test_write, "KII", (unsigned long long)stream, slot, value);
    int code = result ? (int)PyLong_AsLong(result) : -1;
    Py_XDECREF(result);
    return code;
}

static uint32_t
written_in_test(uint32_t slot)
{
    uint64_t bytes;
    return ((const volatile uint32_t *)marks_slots(&bytes))[slot];
}

PyDoc_STRVAR(open_doc,
"open(path, pinned, files, write=None) -> None\n\nNote work into this new file. `pinned`: lines of FILE:LINE:VISIT after\n"
"whose work the stream is waited for. `files`: pairs of a part of a path and whose the file is, see _marks.h.\n"
"`write(stream, slot, value)` takes the device's place in tests. Raises OSError.");

enum { MOST_RULES = 256 };

/* Returns how many rules there are, or -1 with an exception. */
static int
read_rules(PyObject *files, FileRule *rules)
{
    Py_ssize_t count = PyTuple_Size(files);
    if (count > MOST_RULES) {
        PyErr_SetString(PyExc_ValueError, "too many rules for files");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyArg_ParseTuple(PyTuple_GetItem(files, i), "sI", &rules[i].part, &rules[i].whose)) {
            return -1;
        }
    }
    return (int)count;
}

static PyObject *
open_(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *path = NULL, *files, *write = Py_None;
    const char *pinned;
    static FileRule rules[MOST_RULES]; /* under the GIL */
    if (!PyArg_ParseTuple(arguments, "O&sO!|O", PyUnicode_FSConverter, &path, &pinned, &PyTuple_Type, &files, &write)) {
        return NULL;
    }
    int count = read_rules(files, rules);
    if (count < 0) {
        Py_DECREF(path);
        return NULL;
    }
    Driver driver = {write == Py_None ? write_on_device : write_in_test, wait_for_stream,
                     write == Py_None ? written_by_device : written_in_test};
    Py_XDECREF(test_write);
    test_write = Py_NewRef(write);
    watch_forks();
    frames_on_new = marks_describe;
    int error = marks_set_files(rules, count) ? ENOMEM : marks_open(PyBytes_AsString(path), &driver, pinned);
    if (error) {
        errno = error;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AsString(path));
    }
    Py_DECREF(path);
    if (error) {
        return NULL;
    }
    slots.state = slots.being_released = capture_tried = capturing = 0;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(budget_doc,
"budget(share, first, cost_ns=0) -> None\n\nFor tests and benchmarks: put the first marks at once, then so many that they\n"
"take this share of the time. `cost_ns`: what a mark takes; 0 to measure it.");

static PyObject *
budget(PyObject *self, PyObject *arguments)
{
    (void)self;
    double share;
    unsigned first, cost = 0;
    if (!PyArg_ParseTuple(arguments, "dI|I", &share, &first, &cost)) {
        return NULL;
    }
    marks_budget((uint32_t)(share * 1e6), first, cost);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(when_failed_doc,
"when_failed(act) -> None\n\nCall `act()` once, in the call of the driver that returns the first error, by its thread.");

static PyObject *
when_failed(PyObject *self, PyObject *act)
{
    (void)self;
    Py_XDECREF(on_error);
    on_error = act == Py_None ? NULL : Py_NewRef(act);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(follow_doc,
"follow() -> None\n\nBecome the client of CUPTI, and follow the driver's calls. Raises RuntimeError with CUPTI's reason.");

static PyObject *
follow(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (!cupti.library) {
        PyErr_SetString(PyExc_RuntimeError, "libcupti is not loaded: call load() first");
        return NULL;
    }
    if (check_result(&cupti, cupti.Subscribe(&subscriber, around_call, NULL), "cuptiSubscribe")) {
        subscriber = NULL;
        return NULL;
    }
    memset(calls, 0, sizeof calls);
    /* Enabling fails for calls that this driver does not have. */
    for (size_t i = 0; i < sizeof work_calls / sizeof *work_calls; i++) {
        calls[work_calls[i].id].work = calls[work_calls[i].per_thread_id].work = (uint8_t)(i + 1);
        calls[work_calls[i].per_thread_id].per_thread = 1;
        cupti.EnableCallback(1, subscriber, DRIVER_API, work_calls[i].id);
        cupti.EnableCallback(1, subscriber, DRIVER_API, work_calls[i].per_thread_id);
    }
    for (size_t i = 0; i < sizeof capture_calls / sizeof *capture_calls; i++) {
        calls[capture_calls[i].id].capture = capture_calls[i].what;
        calls[capture_calls[i].id].per_thread = capture_calls[i].per_thread;
        cupti.EnableCallback(1, subscriber, DRIVER_API, capture_calls[i].id);
    }
    for (size_t i = 0; i < sizeof done_calls / sizeof *done_calls; i++) {
        calls[done_calls[i].id].done = done_calls[i].what;
        calls[done_calls[i].id].per_thread = done_calls[i].per_thread;
        cupti.EnableCallback(1, subscriber, DRIVER_API, done_calls[i].id);
    }
    for (size_t i = 0; i < sizeof unload_calls / sizeof *unload_calls; i++) {
        calls[unload_calls[i]].unload = 1;
        cupti.EnableCallback(1, subscriber, DRIVER_API, unload_calls[i]);
    }
    for (size_t i = 0; i < sizeof gone_calls / sizeof *gone_calls; i++) {
        calls[gone_calls[i].id].gone = gone_calls[i].what;
        cupti.EnableCallback(1, subscriber, DRIVER_API, gone_calls[i].id);
    }
    for (size_t i = 0; i < sizeof other_calls / sizeof *other_calls; i++) {
        cupti.EnableCallback(1, subscriber, DRIVER_API, other_calls[i]);
    }
    marks_note(SUBSCRIBED, 1);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(close_doc,
"close() -> None\n\nFollow nothing more, and leave the process as it was. Slots that graphs write to stay pinned.");

static PyObject *
close_(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    Py_BEGIN_ALLOW_THREADS
    if (subscriber) {
        void *context;
        cupti.EnableCallback(1, subscriber, DRIVER_API, CTX_GET_CURRENT);
        detach_wanted = 1;
        cuda.CtxGetCurrent(&context); /* CUPTI is finalized at the end of a call, where it is safe for other threads */
        finalize_once();
        subscriber = NULL;
    }
    agent_hold();
    int keep = slots.registered && cuda.MemHostUnregister(slots.host); /* refused if the context is dead */
    if (!marks_close(keep) && slots.instead) {
        cuda.MemFreeHost(slots.instead);
    }
    slots.instead = NULL;
    slots.registered = slots.state = 0;
    agent_release();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(look_doc,
"look() -> None\n\nAsk the driver whether a context was ended by an error that no followed call has returned.");

static PyObject *
look(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    void *context = subscriber ? (void *)(uintptr_t)marks_context() : NULL;
    int result = 0;
    if (context) {
        Py_BEGIN_ALLOW_THREADS
        result = query(context, 0);
        Py_END_ALLOW_THREADS
    }
    if (is_sticky(result) && marks_error(result, 0, NO_FRAME, thread_id(), now())) {
        Py_BEGIN_ALLOW_THREADS
        agent_hold();
        keep_slots();
        agent_release();
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(agent_doc,
"agent(path, stacks, signal) -> None\n\nStart the thread that answers from which this process is asked through the new file\n"
"at `path`. `stacks`: the file descriptor to which the handler of `signal` writes stacks. Raises OSError.");

static PyObject *
agent(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *path = NULL;
    int stacks, signal;
    if (!PyArg_ParseTuple(arguments, "O&ii", PyUnicode_FSConverter, &path, &stacks, &signal)) {
        return NULL;
    }
    watch_forks();
    int error = agent_start(PyBytes_AsString(path), stacks, signal, query_for_agent, keep_slots);
    if (error) {
        errno = error;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AsString(path));
    }
    Py_DECREF(path);
    if (error) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(end_agent_doc, "end_agent() -> None\n\nEnd that thread.");

static PyObject *
end_agent(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    Py_BEGIN_ALLOW_THREADS
    agent_end();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(work_doc,
"work(kind, stream, symbol, event=0, capture=0, thread=0) -> bool\n\nFor tests: note work as if the driver was called\n"
"from this line. Returns whether the stream would be waited for.");

static PyObject *
work(PyObject *self, PyObject *arguments)
{
    (void)self;
    unsigned kind, thread = 0;
    unsigned long long stream, event = 0, capture = 0;
    const char *symbol;
    if (!PyArg_ParseTuple(arguments, "IKz|KKI", &kind, &stream, &symbol, &event, &capture, &thread)) {
        return NULL;
    }
    Work work = {.kind = kind, .context = 1, .stream = stream, .symbol = symbol, .event = event, .capture = capture,
                 .stack = frames_here_all(), .thread = thread, .time = now()};
    marks_unloaded(); /* the name lives as long as this call */
    int waits = marks_work(&work);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(waits);
}

PyDoc_STRVAR(error_doc, "error(code, call) -> None\n\nFor tests: note an error as if the driver had returned it here.");

static PyObject *
error(PyObject *self, PyObject *arguments)
{
    (void)self;
    int code;
    unsigned call;
    if (!PyArg_ParseTuple(arguments, "iI", &code, &call)) {
        return NULL;
    }
    marks_error(code, call, frames_here_all(), thread_id(), now());
    Py_RETURN_NONE;
}

PyDoc_STRVAR(end_capture_doc, "end_capture(stream, capture) -> None\n\nFor tests: note the end of a capture.");

static PyObject *
end_capture(PyObject *self, PyObject *arguments)
{
    (void)self;
    unsigned long long stream, capture;
    if (!PyArg_ParseTuple(arguments, "KK", &stream, &capture)) {
        return NULL;
    }
    marks_end_capture(1, stream, capture);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(backward_doc,
"backward() -> int\n\nTake this stack for work of threads without Python frames. Returns the one that was taken before.");

static PyObject *
backward(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    return PyLong_FromLong(atomic_exchange(&backward_stack, frames_here_all()));
}

PyDoc_STRVAR(backward_over_doc, "backward_over(before) -> None\n\nTake that one again, which backward() returned.");

static PyObject *
backward_over(PyObject *self, PyObject *before)
{
    (void)self;
    long number = PyLong_AsLong(before);
    if (PyErr_Occurred()) {
        return NULL;
    }
    backward_stack = (int32_t)number;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(supported_doc, "frames_supported() -> bool\n\nWhether stacks can be read in this version of Python.");

static PyObject *
supported(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    return PyBool_FromLong(frames_supported());
}

static PyMethodDef methods[] = {
    {"load", load, METH_O, load_doc},
    {"open", open_, METH_VARARGS, open_doc},
    {"budget", budget, METH_VARARGS, budget_doc},
    {"when_failed", when_failed, METH_O, when_failed_doc},
    {"follow", follow, METH_NOARGS, follow_doc},
    {"look", look, METH_NOARGS, look_doc},
    {"close", close_, METH_NOARGS, close_doc},
    {"agent", agent, METH_VARARGS, agent_doc},
    {"end_agent", end_agent, METH_NOARGS, end_agent_doc},
    {"backward", backward, METH_NOARGS, backward_doc},
    {"backward_over", backward_over, METH_O, backward_over_doc},
    {"frames_supported", supported, METH_NOARGS, supported_doc},
    {"work", work, METH_VARARGS, work_doc},
    {"error", error, METH_VARARGS, error_doc},
    {"end_capture", end_capture, METH_VARARGS, end_capture_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots_of_module[] = {{0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_blame", .m_methods = methods, .m_slots = slots_of_module,
};

PyMODINIT_FUNC
PyInit__blame(void)
{
    return PyModuleDef_Init(&module);
}
