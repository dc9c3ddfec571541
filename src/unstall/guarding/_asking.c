/* Asks Python whether a thread may wait.

   torch releases the GIL before it waits, so it is taken for asking. But not if torch's allocator makes the call: it holds
   a lock then, for which another thread, with the GIL, may wait. torch's order is the GIL first, then that lock. So a
   thread of ours asks on its behalf. If it gets no answer for `patience_ms`, in which the allocator stands still, the wait
   is let through, and counted as missed. So is one of a thread that holds that lock and the GIL: Python code may release
   the GIL. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_asking.h"
#include "_functions.h"

#include "../lines/_gil.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
    PyObject *before, *after;
    unsigned patience_ms; /* how long a thread waits for an answer */
} python;

static _Atomic long missed;

__thread int asking_depth;

/* Python calls it in the main thread, between two instructions. */
static int
raise_now(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

/* Raises the exception that is set once the program's Python code goes on: it may be of the program's own, from a handler
   of a signal, or a warning that is an error. In another thread than the main one, it can only be printed. */
static void
raise_soon(PyObject *function)
{
    if (syscall(SYS_gettid) != getpid()) {
        PyErr_WriteUnraisable(function);
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    if (value && Py_AddPendingCall(raise_now, value)) {
        Py_DECREF(value);
    }
}

/* Calls a function of Python, and returns its answer, 0 if it raises. Takes both references. */
static long
call(PyObject *function, PyObject *arguments)
{
    PyObject *answer = function && arguments ? PyObject_CallObject(function, arguments) : NULL;
    long result = answer ? PyLong_AsLong(answer) : 0;
    Py_XDECREF(answer);
    Py_XDECREF(arguments);
    if (PyErr_Occurred()) {
        raise_soon(function);
        result = 0;
    }
    Py_XDECREF(function);
    return result;
}

/* Returns 0: let it through; < 0: refuse; else the number by which its duration is told. */
static long
ask_here(const Question *question, unsigned long thread, int here)
{
    Gil gil = gil_take();
    PyObject *before = Py_XNewRef(python.before); /* another thread may end all this meanwhile */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *operators = PyTuple_New(question->operators.calls.count);
    for (int i = 0; operators && i < question->operators.calls.count; i++) { /* outermost first */
        PyTuple_SetItem(operators, question->operators.calls.count - 1 - i, PyUnicode_FromFormat("aten::%s", question->operators.names[i]));
    }
    long answer = call(before, Py_BuildValue("(iNniki)", question->kind, operators, (Py_ssize_t)question->bytes,
                                            question->is_pinned, thread, here));
    PyErr_Restore(type, value, traceback);
    gil_leave(gil);
    return answer;
}

static void
tell_here(long wait, int64_t ns)
{
    Gil gil = gil_take();
    PyObject *after = Py_XNewRef(python.after);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    call(after, Py_BuildValue("(lL)", wait, (long long)ns));
    PyErr_Restore(type, value, traceback);
    gil_leave(gil);
}

static struct {
    pthread_mutex_t turn; /* one question at a time */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t asked, answered;
    enum { IDLE, ASKED, ANSWERED, GIVEN_UP } state; /* GIVEN_UP until the thread that asks is done with the question */
    Question question;
    unsigned long thread; /* that asks, as threading.get_ident() */
    long answer;
    int started, ends;
    pthread_t itself;
} asker = {.turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .asked = PTHREAD_COND_INITIALIZER};

static void *
serve(void *nothing)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals are the program's threads' */
    pthread_setname_np(pthread_self(), "unstall_guard");
    asking_depth = 1;
    pthread_mutex_lock(&asker.lock);
    while (!asker.ends) {
        if (asker.state != ASKED) {
            asker.state = asker.state == GIVEN_UP ? IDLE : asker.state;
            pthread_cond_wait(&asker.asked, &asker.lock);
            continue;
        }
        Question question = asker.question;
        unsigned long thread = asker.thread;
        pthread_mutex_unlock(&asker.lock);
        long answer = ask_here(&question, thread, 0); /* not under the lock: who asks may give up meanwhile */
        pthread_mutex_lock(&asker.lock);
        asker.answer = answer;
        int is_late = asker.state != ASKED;
        asker.state = is_late ? IDLE : ANSWERED;
        pthread_cond_signal(&asker.answered);
        if (is_late && answer > 0) {
            pthread_mutex_unlock(&asker.lock);
            tell_here(answer, -1);
            pthread_mutex_lock(&asker.lock);
        }
    }
    pthread_mutex_unlock(&asker.lock);
    return nothing;
}

static long
ask_by_other_thread(const Question *question)
{
    struct timespec until;
    long answer = 0;
    pthread_mutex_lock(&asker.turn);
    pthread_mutex_lock(&asker.lock);
    if (asker.state == IDLE) {
        asker.question = *question;
        asker.thread = (unsigned long)pthread_self();
        asker.state = ASKED;
        pthread_cond_signal(&asker.asked);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += python.patience_ms / 1000;
        until.tv_nsec += python.patience_ms % 1000 * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (asker.state == ASKED && !pthread_cond_timedwait(&asker.answered, &asker.lock, &until)) {
        }
    }
    if (asker.state == ANSWERED) {
        answer = asker.answer;
        asker.state = IDLE;
    }
    else {
        asker.state = GIVEN_UP;
        missed++;
    }
    pthread_mutex_unlock(&asker.lock);
    pthread_mutex_unlock(&asker.turn);
    return answer;
}

/* How long a wait was. */
typedef struct {
    long wait;
    uint64_t ns;
} Row;

/* Those that Python was not told yet. */
static struct {
    pthread_mutex_t lock; /* who has it calls no Python: the garbage collector may free memory of CUDA, or leave a guard */
    Row *rows;
    size_t count, room;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The row of a wait, or kept.count. Under the lock. */
static size_t
row_of(long wait)
{
    for (size_t i = kept.count; i > 0; i--) { /* it is one of the last */
        if (kept.rows[i - 1].wait == wait) {
            return i - 1;
        }
    }
    return kept.count;
}

void
asking_keep(long wait, uint64_t ns, int is_first)
{
    pthread_mutex_lock(&kept.lock);
    size_t at = is_first ? kept.count : row_of(wait);
    if (at < kept.count) {
        kept.rows[at].ns += ns;
    }
    else if (kept.count == kept.room) {
        size_t room = kept.room ? 2 * kept.room : 256;
        Row *rows = realloc(kept.rows, room * sizeof *rows);
        if (rows) {
            kept.rows = rows;
            kept.room = room;
        }
    }
    if (at == kept.count && kept.count < kept.room) {
        kept.rows[kept.count].wait = wait;
        kept.rows[kept.count++].ns = ns;
    }
    pthread_mutex_unlock(&kept.lock);
}

void
asking_tell(long wait)
{
    pthread_mutex_lock(&kept.lock);
    size_t at = row_of(wait);
    int is_kept = at < kept.count;
    uint64_t ns = is_kept ? kept.rows[at].ns : 0;
    if (is_kept) {
        memmove(&kept.rows[at], &kept.rows[at + 1], (--kept.count - at) * sizeof *kept.rows);
    }
    pthread_mutex_unlock(&kept.lock);
    if (is_kept) {
        tell_here(wait, (int64_t)ns);
    }
}

long
asking_before(const Question *question)
{
    if (!question->operators.is_allocators) {
        return ask_here(question, (unsigned long)pthread_self(), 1);
    }
    if (gil_is_held()) {
        missed++;
        return 0;
    }
    return ask_by_other_thread(question);
}

PyObject *
asking_ended(void)
{
    pthread_mutex_lock(&kept.lock);
    Row *rows = kept.rows;
    size_t count = kept.count;
    kept.rows = NULL;
    kept.count = kept.room = 0;
    pthread_mutex_unlock(&kept.lock);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *row = Py_BuildValue("lK", rows[i].wait, (unsigned long long)rows[i].ns);
        if (!row || PyList_Append(list, row)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    free(rows);
    return list ? Py_BuildValue("Nl", list, atomic_exchange(&missed, 0)) : NULL;
}

int
asking_begin(PyObject *before, PyObject *after, unsigned patience_ms)
{
    python.patience_ms = patience_ms;
    if (!asker.started) {
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&asker.answered, &monotonic);
        pthread_cond_init(&asker.asked, NULL);
        pthread_condattr_destroy(&monotonic);
        asker.ends = 0;
        asker.state = IDLE;
        asker.started = !pthread_create(&asker.itself, NULL, serve, NULL);
    }
    if (!asker.started) {
        PyErr_SetString(PyExc_OSError, "no thread can be started");
        return -1;
    }
    Py_XDECREF(python.before);
    Py_XDECREF(python.after);
    python.before = Py_NewRef(before);
    python.after = Py_NewRef(after);
    return 0;
}

void
asking_end(void)
{
    if (asker.started) {
        pthread_mutex_lock(&asker.lock);
        asker.ends = 1;
        pthread_cond_signal(&asker.asked);
        pthread_mutex_unlock(&asker.lock);
        Py_BEGIN_ALLOW_THREADS
        pthread_join(asker.itself, NULL);
        Py_END_ALLOW_THREADS
        asker.started = 0;
    }
    Py_CLEAR(python.before);
    Py_CLEAR(python.after);
}

void
asking_forked(void)
{
    asker.started = 0;
    pthread_mutex_init(&asker.turn, NULL);
    pthread_mutex_init(&asker.lock, NULL);
    pthread_mutex_init(&kept.lock, NULL);
    kept.rows = NULL; /* the parent tells of its waits; another thread of it may have been in the middle of a change */
    kept.count = kept.room = 0;
    missed = 0;
    functions_forked();
}
