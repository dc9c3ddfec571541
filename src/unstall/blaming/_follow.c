/* The functions of _follow.h. CUPTI is asked for callbacks only, not for activity records. Marks are made by
   cuStreamWriteValue32 in the callback before the work; the slots are pinned for the device there, too, once. */

#include "_follow.h"

#include "_agent.h"
#include "_calls.h"
#include "_driver.h"
#include "_marks.h"

#include "../cupti/_callbacks.h"
#include "../lines/_clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static Callbacks cupti;

static const Symbol symbols[] = {CALLBACKS_SYMBOLS(cupti)};

static void *subscriber;
static _Atomic int detach_wanted; /* the thread that sets it to 0 finalizes CUPTI, so that it happens once */
static _Atomic int capturing;     /* captures under way */
static __thread int busy;         /* in a callback: our own calls of the driver are not followed */
static __thread struct {
    Work work;
    int wanted;
} to_wait;
static __thread int in_capture;       /* whether the stream of the call that ends a capture was in one before it */
static __thread uint64_t next_before; /* the number of the next entry when a call began that waits */

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

static int
query(void *context, uint64_t stream)
{
    busy = 1;
    int result = driver_query(context, stream);
    busy = 0;
    return result;
}

int
follow_query(uint64_t context, uint64_t stream)
{
    return !subscriber || !marks_on() || capturing ? NOT_ASKED : query((void *)(uintptr_t)context, stream);
}

/* Whether the stream is in a capture that a call which ends one was told to end. */
static int
is_captured(uint32_t id, const CallbackData *data)
{
    uint64_t stream = pointer_in(data->parameters, 0), capture;
    return driver_capture_status(stream || !calls[id].per_thread ? stream : PER_THREAD_STREAM, &capture) != NO_CAPTURE;
}

/* Captures that began before they were followed are not counted. */
static void
capture_ended(void)
{
    int before = capturing;
    while (before > 0 && !atomic_compare_exchange_weak(&capturing, &before, before - 1)) {
    }
}

uint32_t
follow_thread(void)
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
    uint32_t kind = calls_kind(id);
    uint64_t stream = calls_stream(id, data);
    Work work = {
        .kind = kind, .context = (uint64_t)(uintptr_t)data->context,
        .stream = stream == LEGACY_STREAM ? 0 : stream,
        .per_thread = stream == PER_THREAD_STREAM ? follow_thread() : 0,
        .event = calls_event(id, data),
        .value = kind == WAIT_VALUE || kind == WRITE_VALUE ? (uint32_t)pointer_in(data->parameters, 16) : 0,
        .capture = capturing ? driver_capture(stream) : 0,
        .symbol = kind == KERNEL ? data->symbol : NULL,
        .stack = frames_here_all(), .thread = follow_thread(), .time = now(),
    };
    if (work.stack < 0) {
        work.stack = backward_stack;
        work.backward = work.stack >= 0;
    }
    if (work.capture) {
        driver_try_capture();
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
    marks_stream_done(context, handle == LEGACY_STREAM ? 0 : handle,
                      handle == PER_THREAD_STREAM ? follow_thread() : 0, 0, next_before);
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
    if (is_sticky(result) && marks_error(result, id, frames_here_all(), follow_thread(), now())) {
        agent_hold();
        driver_keep_slots();
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
    if (what == STREAM_GONE) {
        marks_gone(0, handle, 0); /* the context that is current may be another than the stream's */
    }
    else {
        marks_gone(handle, 0, 1);
        driver_keep_slots();
    }
    if (what == CONTEXT_GONE || what == PRIMARY_GONE) {
        driver_context_goes(handle);
    }
    else if (what == PRIMARY_RELEASED) {
        driver_releases();
    }
    agent_release();
}

static void
end_releasing(const CallbackData *data)
{
    int device;
    memcpy(&device, data->parameters, sizeof device);
    agent_hold();
    driver_released(device);
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
        if (data->site != ENTER && marks_on()) { /* an error is noted */
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
            uint64_t stream = pointer_in(data->parameters, 0), capture = driver_capture(stream);
            in_capture = is_captured(id, data);
            if (capture) {
                marks_end_capture((uint64_t)(uintptr_t)data->context, stream, capture);
            }
        }
        busy = 0;
    }
}

int
follow_load(const char *libcupti)
{
    if (cupti.library) {
        return 0;
    }
    void *library = load_library(libcupti, symbols, sizeof symbols / sizeof *symbols);
    if (!library || driver_load()) {
        return -1;
    }
    cupti.library = library;
    return 0;
}

int
follow_begin(void)
{
    if (!cupti.library) {
        PyErr_SetString(PyExc_RuntimeError, "libcupti is not loaded: call load() first");
        return -1;
    }
    if (check_result(&cupti, cupti.Subscribe(&subscriber, around_call, NULL), "cuptiSubscribe")) {
        subscriber = NULL;
        return -1;
    }
    calls_enable(&cupti, subscriber);
    marks_note(SUBSCRIBED, 1);
    return 0;
}

void
follow_end(void)
{
    if (subscriber) {
        cupti.EnableCallback(1, subscriber, DRIVER_API, CTX_GET_CURRENT);
        detach_wanted = 1;
        driver_touch(); /* CUPTI is finalized at the end of a call, where it is safe for other threads */
        finalize_once();
        subscriber = NULL;
    }
}

void
follow_open(void)
{
    capturing = 0;
}

void
follow_when_failed(PyObject *act)
{
    Py_XDECREF(on_error);
    on_error = Py_XNewRef(act);
}

int32_t
follow_backward(int32_t stack)
{
    return atomic_exchange(&backward_stack, stack);
}

void
follow_look(void)
{
    void *context = subscriber ? (void *)(uintptr_t)marks_context() : NULL;
    int result = context ? query(context, 0) : 0;
    if (is_sticky(result) && marks_error(result, 0, NO_FRAME, follow_thread(), now())) {
        agent_hold();
        driver_keep_slots();
        agent_release();
    }
}

void
follow_forked(void)
{
    detach_wanted = capturing = 0;
    subscriber = NULL;
}
