/* The functions of _follow.h. Marks are made by cuStreamWriteValue32 before the call that puts the work on the stream; the
   slots are pinned for the device there, too, once. */

#include "_follow.h"

#include "_agent.h"
#include "_calls.h"
#include "_driver.h"
#include "_marks.h"

#include "../lines/_clock.h"
#include "../lines/_gil.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const Pointers *pointers;

static _Atomic int following;
static _Atomic int capturing; /* captures under way */
static __thread int busy;     /* in a call: what is called within it is not followed */

/* What is kept from before a call until after it. */
typedef struct {
    Work work;
    int waits;       /* whether the work is to be waited for */
    int in_capture;  /* whether the stream of the call that ends a capture was in one */
    uint64_t next;   /* the number of the next entry */
} Before;

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

int
follow_query(uint64_t context, uint64_t stream)
{
    return !following || !marks_on() || capturing ? NOT_ASKED : driver_query((void *)(uintptr_t)context, stream);
}

/* Whether the stream is in a capture that a call which ends one was told to end. */
static int
is_captured(const Made *made)
{
    uint64_t stream = (uint64_t)made->arguments[0], capture;
    return driver_capture_status(stream || !made->per_thread ? stream : PER_THREAD_STREAM, &capture) != NO_CAPTURE;
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

/* The arguments of cuStreamBatchMemOp. An operation: its kind at 0, its address at 8, its value at 16. */
enum { BATCH_COUNT = 1, BATCH_OPERATIONS = 2, BATCH_BYTES = 48, MOST_IN_BATCH = 256 };

static void
note_batch(Work *work, const Word *arguments)
{
    uint32_t count = (uint32_t)arguments[BATCH_COUNT];
    const char *operations = (const char *)arguments[BATCH_OPERATIONS];
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
begin_work(const Made *made, Before *before)
{
    const Call *call = made->call;
    uint64_t stream = calls_stream(made);
    Work work = {
        .kind = call->kind, .context = driver_context(),
        .stream = stream == LEGACY_STREAM ? 0 : stream,
        .per_thread = stream == PER_THREAD_STREAM ? follow_thread() : 0,
        .event = calls_event(made),
        .value = call->kind == WAIT_VALUE || call->kind == WRITE_VALUE ? (uint32_t)made->arguments[call->event + 1] : 0,
        .capture = capturing ? driver_capture(stream) : 0,
        .symbol = call->kind == KERNEL ? driver_kernel((uint64_t)made->arguments[call->kernel]) : NULL,
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
        note_batch(&work, made->arguments);
        return;
    }
    before->waits = marks_work(&work) && !capturing; /* a wait would end captures of other streams */
    if (before->waits) {
        before->work = work;
    }
}

static PyObject *on_error; /* called once, at the call that returned the error */

static void
tell_of_error(void)
{
    if (!Py_IsInitialized()) {
        return;
    }
    Gil held = gil_take();
    PyObject *type, *value, *traceback; /* the caller may be about to raise */
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = PyObject_CallFunctionObjArgs(on_error, NULL);
    if (!result) {
        PyErr_Clear();
    }
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
    gil_leave(held);
}

static void
note_done(const Made *made, uint64_t next)
{
    uint64_t context = driver_context();
    if (made->call->done == CONTEXT_DONE) {
        marks_stream_done(context, 0, 0, 1, next);
        return;
    }
    uint64_t handle = (uint64_t)made->arguments[0];
    if (made->call->done == EVENT_DONE) {
        marks_event_done(handle);
        return;
    }
    handle = handle || !made->per_thread ? handle : PER_THREAD_STREAM;
    marks_stream_done(context, handle == LEGACY_STREAM ? 0 : handle,
                      handle == PER_THREAD_STREAM ? follow_thread() : 0, 0, next);
}

static void
note_error(int result, const char *call, int32_t stack)
{
    if (marks_error(result, call, stack, follow_thread(), now())) {
        agent_hold();
        driver_keep_slots();
        agent_release();
        if (on_error && *call) {
            tell_of_error();
        }
    }
}

static void
begin_destroying(const Made *made)
{
    int what = made->call->gone;
    uint64_t handle = what < PRIMARY_GONE ? (uint64_t)made->arguments[0] : 0;
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
unloaded(void)
{
    driver_unloaded();
    marks_unloaded();
}

static void
begin_capture(void)
{
    agent_hold();
    capturing++; /* until its end, or if it fails */
    agent_release();
}

static void
end_capture(const Made *made, Before *before)
{
    uint64_t stream = (uint64_t)made->arguments[0], capture = driver_capture(stream);
    before->in_capture = is_captured(made);
    if (capture) {
        marks_end_capture(driver_context(), stream, capture);
    }
}

static void
begin_call(const Made *made, Before *before)
{
    const Call *call = made->call;
    if (call->gone) { /* after an error, too: the agent goes on */
        begin_destroying(made);
        driver_unloaded();
    }
    else if (call->unload) { /* before and after it: another thread may launch meanwhile */
        unloaded();
    }
    else if (call->kind) {
        begin_work(made, before);
    }
    else if (call->done) {
        before->next = marks_next();
    }
    else if (call->capture == BEGIN_CAPTURE) {
        begin_capture();
    }
    else if (call->capture == END_CAPTURE) {
        end_capture(made, before);
    }
}

static void
end_call(const Made *made, Before *before, int returned)
{
    const Call *call = made->call;
    if (call->gone == PRIMARY_RELEASED) {
        agent_hold();
        driver_released((int)made->arguments[0]);
        agent_release();
    }
    if (!marks_on()) { /* an error is noted */
        return;
    }
    if (call->unload) {
        unloaded();
    }
    int result = before->waits ? marks_wait(&before->work) : 0;
    if (!is_sticky(result)) {
        result = returned;
    }
    if (is_sticky(result)) {
        note_error(result, call->function.name, frames_here_all());
    }
    if (call->done && !result) {
        note_done(made, before->next);
    }
    if (call->capture == BEGIN_CAPTURE && result) {
        capture_ended();
    }
    else if (call->capture == END_CAPTURE && before->in_capture && !is_captured(made)) { /* it may fail, and end it */
        capture_ended();
    }
}

static Word
called(int number, PARAMETERS)
{
    Made made = *calls_made(number);
    if (busy || !following || !(marks_on() || made.call->gone)) {
        return pointers->go_on(BLAMING, number, ARGUMENTS);
    }
    const Word arguments[WORDS] = {ARGUMENTS};
    Before before;
    before.waits = before.in_capture = 0;
    before.next = 0;
    made.arguments = arguments;
    busy = 1;
    begin_call(&made, &before);
    Word result = pointers->go_on(BLAMING, number, ARGUMENTS);
    end_call(&made, &before, (int)result);
    busy = 0;
    return result;
}

int
follow_import(void)
{
    pointers = pointers_import();
    return pointers ? 0 : -1;
}

int
follow_begin(void)
{
    void *driver = driver_load(pointers);
    if (!driver) {
        return -1;
    }
    calls_add(pointers, driver);
    following = 1;
    const char *why;
    Py_BEGIN_ALLOW_THREADS
    why = pointers->follow(BLAMING, called, driver);
    Py_END_ALLOW_THREADS
    if (why) {
        follow_end();
        PyErr_Format(PyExc_OSError, "calls of CUDA's driver cannot be followed: %s", why);
        return -1;
    }
    marks_note(FOLLOWED, 1);
    return 0;
}

void
follow_end(void)
{
    if (following) {
        following = 0;
        pointers->leave(BLAMING);
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
    void *context = following ? (void *)(uintptr_t)marks_context() : NULL;
    int result = context ? driver_query(context, 0) : 0;
    if (is_sticky(result)) {
        note_error(result, "", NO_FRAME);
    }
}

void
follow_forked(void)
{
    following = capturing = 0;
}
