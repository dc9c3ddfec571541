/* Asks a function of Python before each call to CUDA's driver that makes the host wait, in threads that are guarded, and
   refuses the call if that function says so: the driver's caller gets CUDA_ERROR_NOT_PERMITTED, and nothing was waited for.

   Calls are seen through the driver's pointers (_pointers.c): of torch, and of every library that is there. Launches are
   not followed, so a loop that does not wait costs nothing. A call in a thread that is not guarded costs one read of a
   counter.

   torch releases the GIL before it waits, so it is taken for asking. But not if torch's allocator makes the call, as it holds
   a lock then, which another thread, with the GIL, may wait for: torch's order is the GIL first. A thread of ours asks
   Python on its behalf. If it gets no answer in time, the call is let through, and counted as missed. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../lines/_clock.h"
#include "_pointers.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NOT_PERMITTED = 800, MEMORY_OF_HOST = 1, MEMORY_TYPE = 2 }; /* cuda.h: CUresult, CUmemorytype, CUpointer_attribute */
enum { MOST_FRAMES = 96, COUNTERS = 1024, NAMES = 4096, NAME = 64, FINISHED = 256 };

/* What a function does, and where its arguments are. The same numbers are in driver.py. */
typedef enum {
    STREAM = 1,    /* waits for a stream: the first argument */
    EVENT,         /* waits for an event */
    DEVICE,        /* waits for all streams */
    ALLOCATE,      /* allocates device memory */
    FREE,          /* frees some */
    TO_DEVICE,     /* copies from the host's memory, the second argument, and waits */
    TO_HOST,       /* copies to the host's memory, the first argument, and waits */
    ANY,           /* copies, and waits; either may be the host's */
    TO_DEVICE_ASYNC, /* copies that wait if the host's memory is pageable; the stream is the fourth argument */
    TO_HOST_ASYNC,
    ANY_ASYNC,
} Kind;

typedef int (*PointerAttribute)(void *data, int attribute, uint64_t pointer);

static struct {
    Kind kinds[MOST_FUNCTIONS];
    PointerAttribute attribute;
    PyObject *before;
    int (*holds_gil)(void);
    unsigned patience_ms; /* how long a thread waits for Python's answer */
    unsigned long long libraries;
    int installed;
} hooks;

static _Atomic int counters[COUNTERS]; /* by thread id, modulo: how many guards were entered there. A filter only. */
static _Atomic long missed;

static __thread struct {
    int32_t thread;       /* the system's id, 0 at first */
    int is_autograds;     /* torch's autograd runs the backward pass here, for the thread that asked for it */
    int depth;            /* of calls within calls, and of Python that is asked: only the outermost counts */
    Word copied_on;       /* the stream of the copy before, if it was a wait: its synchronization is no other */
    int copied;
    long copy;            /* what Python called that wait */
} mine;

static int
thread_index(void)
{
    if (!mine.thread) {
        mine.thread = (int32_t)syscall(SYS_gettid);
        char name[16] = "";
        pthread_getname_np(pthread_self(), name, sizeof name);
        mine.is_autograds = !strncmp(name, "pt_autograd_", 12);
    }
    return mine.thread % COUNTERS;
}

/* ---- which operator of torch makes this call ---- */

static struct {
    pthread_mutex_t lock;
    struct {
        void *address;
        char name[NAME]; /* "" if the address is in no operator */
        int is_python, is_allocator;
    } rows[NAMES];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Reads NAME out of _ZN2at4_ops<length>NAME4callE… or …10redispatchE…. */
static void
operator_of(const char *symbol, char *name)
{
    static const char start[] = "_ZN2at4_ops";
    name[0] = 0;
    if (!symbol || strncmp(symbol, start, sizeof start - 1)) {
        return;
    }
    char *end;
    unsigned long length = strtoul(symbol + sizeof start - 1, &end, 10);
    if (!length || length >= NAME || strlen(end) <= length) {
        return;
    }
    if (!strncmp(end + length, "4callE", 6) || !strncmp(end + length, "10redispatchE", 13)) {
        memcpy(name, end, length);
        name[length] = 0;
    }
}

/* Whether this is code of torch's allocator: c10's library for CUDA has little else, and what it has is exported. */
static int
is_allocators(const char *library, const char *symbol)
{
    static const char *const others[] = {"stream_synchronize", "device_synchronize", "memcpy_and_sync", "CUDAStream"};
    const char *name = library ? strrchr(library, '/') : NULL;
    if (!name || strncmp(name, "/libc10_cuda.so", 15)) {
        return 0;
    }
    for (size_t i = 0; symbol && i < sizeof others / sizeof *others; i++) {
        if (strstr(symbol, others[i])) {
            return 0;
        }
    }
    return 1;
}

/* Finds the outermost operator below the innermost frame of Python; "" if there is none. Returns whether torch's
   allocator is between them and the call. */
static int
find_operator(char *name)
{
    void *frames[MOST_FRAMES];
    int count = backtrace(frames, MOST_FRAMES), is_allocator = 0;
    name[0] = 0;
    pthread_mutex_lock(&known.lock);
    for (int i = 0; i < count; i++) {
        size_t at = ((uintptr_t)frames[i] * 0x9E3779B97F4A7C15u >> 52) % NAMES;
        if (known.rows[at].address != frames[i]) {
            Dl_info info;
            int found = dladdr(frames[i], &info);
            const char *symbol = found ? info.dli_sname : NULL;
            known.rows[at].is_allocator = found && is_allocators(info.dli_fname, symbol);
            known.rows[at].address = frames[i];
            known.rows[at].is_python = symbol && !strcmp(symbol, "_PyEval_EvalFrameDefault");
            operator_of(symbol, known.rows[at].name);
        }
        if (known.rows[at].is_python) {
            break;
        }
        is_allocator |= known.rows[at].is_allocator;
        if (known.rows[at].name[0]) {
            memcpy(name, known.rows[at].name, NAME);
        }
    }
    pthread_mutex_unlock(&known.lock);
    return is_allocator;
}

/* ---- asking Python ---- */

typedef struct {
    Kind kind;
    unsigned long thread; /* as threading.get_ident() */
    int is_autograds;
    char name[NAME];
} Question;

/* Returns 0: let it through; < 0: refuse; else the number by which its duration is told. With the GIL. */
static long
ask(const Question *question, int here)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    long result = 0;
    if (hooks.before) {
        PyObject *answer = PyObject_CallFunction(hooks.before, "iskii", (int)question->kind, question->name, question->thread,
                                                 question->is_autograds, here);
        result = answer ? PyLong_AsLong(answer) : 0;
        Py_XDECREF(answer);
        if (PyErr_Occurred()) {
            PyErr_WriteUnraisable(hooks.before);
            result = 0;
        }
    }
    PyErr_Restore(type, value, traceback);
    return result;
}

static long
ask_here(const Question *question, int here)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    long answer = ask(question, here);
    PyGILState_Release(gil);
    return answer;
}

static struct {
    pthread_mutex_t turn; /* one question at a time */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t asked, answered;
    enum { IDLE, ASKED, ANSWERED, GIVEN_UP } state; /* GIVEN_UP until the thread that asks is done with the question */
    Question question;
    long answer;
    int started, ends;
    pthread_t thread;
} asker = {.turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .asked = PTHREAD_COND_INITIALIZER};

static void *
serve(void *nothing)
{
    pthread_setname_np(pthread_self(), "unstall_guard");
    pthread_mutex_lock(&asker.lock);
    while (!asker.ends) {
        if (asker.state != ASKED) {
            asker.state = asker.state == GIVEN_UP ? IDLE : asker.state;
            pthread_cond_wait(&asker.asked, &asker.lock);
            continue;
        }
        Question question = asker.question;
        pthread_mutex_unlock(&asker.lock);
        long answer = ask_here(&question, 0); /* not under the lock: who asks may give up meanwhile */
        pthread_mutex_lock(&asker.lock);
        asker.answer = answer;
        asker.state = asker.state == ASKED ? ANSWERED : IDLE;
        pthread_cond_signal(&asker.answered);
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
        asker.state = ASKED;
        pthread_cond_signal(&asker.asked);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += hooks.patience_ms / 1000;
        until.tv_nsec += hooks.patience_ms % 1000 * 1000000;
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

/* Durations that no one could tell Python of, for lack of the GIL. Python takes them later. */
static struct {
    pthread_mutex_t lock;
    struct {
        long wait;
        uint64_t ns;
    } rows[FINISHED];
    int count;
} finished = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
tell(long wait, uint64_t ns)
{
    pthread_mutex_lock(&finished.lock);
    if (finished.count < FINISHED) {
        finished.rows[finished.count].wait = wait;
        finished.rows[finished.count++].ns = ns;
    }
    pthread_mutex_unlock(&finished.lock);
}

/* ---- the calls ---- */

static int
is_pageable(Word pointer)
{
    unsigned type = 0;
    return !hooks.attribute || hooks.attribute(&type, MEMORY_TYPE, (uint64_t)pointer) != 0;
}

/* Whether a call of this kind waits: an "asynchronous" copy does if the host's memory is pageable. */
static int
waits(Kind kind, Word a, Word b)
{
    switch (kind) {
    case TO_DEVICE_ASYNC:
        return is_pageable(b);
    case TO_HOST_ASYNC:
        return is_pageable(a);
    case ANY_ASYNC:
        return is_pageable(a) || is_pageable(b);
    default:
        return 1;
    }
}

Word
pointers_called(int number, PARAMETERS)
{
    Function function = pointers_function(number);
    int index = thread_index();
    if (mine.depth || (!atomic_load_explicit(&counters[index], memory_order_relaxed) && !mine.is_autograds) ||
        !hooks.installed) {
        return function(ARGUMENTS);
    }
    Kind kind = hooks.kinds[number];
    int is_copys = kind == STREAM && mine.copied && mine.copied_on == a;
    mine.copied = 0;
    if (!is_copys && !waits(kind, a, b)) {
        return function(ARGUMENTS);
    }
    mine.depth++;
    long wait = mine.copy;
    if (!is_copys) {
        Question question = {.kind = kind, .thread = (unsigned long)pthread_self(), .is_autograds = mine.is_autograds};
        int is_locked = find_operator(question.name) && !(hooks.holds_gil && hooks.holds_gil());
        wait = is_locked ? ask_by_other_thread(&question) : ask_here(&question, 1);
    }
    Word result = NOT_PERMITTED;
    if (wait >= 0) {
        uint64_t start = now();
        result = function(ARGUMENTS);
        if (wait) {
            tell(wait, now() - start);
        }
    }
    if (kind >= TO_DEVICE_ASYNC && wait >= 0) {
        mine.copied = 1;
        mine.copied_on = d;
        mine.copy = wait;
    }
    mine.depth--;
    return result;
}

/* ---- the module ---- */

/* In a forked child nothing is guarded, as CUDA is not usable there, and the thread that asks does not exist. */
static void
forked(void)
{
    hooks.installed = 0;
    asker.started = 0;
    pthread_mutex_init(&asker.turn, NULL);
    pthread_mutex_init(&asker.lock, NULL);
    pthread_mutex_init(&known.lock, NULL);
    pthread_mutex_init(&finished.lock, NULL);
    for (int i = 0; i < COUNTERS; i++) {
        counters[i] = 0;
    }
}

static int
start_asker(void)
{
    if (asker.started) {
        return 0;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&asker.answered, &monotonic);
    pthread_cond_init(&asker.asked, NULL);
    pthread_condattr_destroy(&monotonic);
    asker.ends = 0;
    asker.state = IDLE;
    asker.started = !pthread_create(&asker.thread, NULL, serve, NULL);
    return asker.started ? 0 : -1;
}

static PyObject *
search(void)
{
    unsigned long long libraries = pointers_libraries();
    int failed = 0;
    if (libraries != hooks.libraries) {
        Py_BEGIN_ALLOW_THREADS
        failed = pointers_replace();
        Py_END_ALLOW_THREADS
        hooks.libraries = libraries;
    }
    if (failed) {
        PyErr_SetString(PyExc_OSError, "the process's memory cannot be looked at");
        return NULL;
    }
    return PyLong_FromSize_t(pointers_count());
}

PyDoc_STRVAR(install_doc,
"install(library, functions, before, patience_ms) -> int\n\n"
"Follow these functions of a library, a dict of kinds by name. Returns how many pointers to them were found.\n"
"Calls before(kind, operator, thread, is_autograds, here) before a wait in a thread that is guarded: it returns 0 to let\n"
"the wait be, -1 to refuse it, or a number by which finished() tells how long it was. `here` is false if another thread\n"
"asks; the wait is let through if there is no answer in time. Raises OSError if the library is not loaded, or the\n"
"process's memory cannot be looked at.");

static PyObject *
install(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *library;
    PyObject *functions, *before, *key, *value;
    if (!PyArg_ParseTuple(arguments, "sO!OI", &library, &PyDict_Type, &functions, &before, &hooks.patience_ms)) {
        return NULL;
    }
    static int watched;
    if (!watched && pthread_atfork(NULL, NULL, forked)) {
        PyErr_SetString(PyExc_OSError, "the process's fork cannot be watched");
        return NULL;
    }
    watched = 1;
    void *driver = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!driver) {
        PyErr_Format(PyExc_OSError, "%s is not loaded", library);
        return NULL;
    }
    void *attribute = dlsym(driver, "cuPointerGetAttribute"), *check = dlsym(RTLD_DEFAULT, "PyGILState_Check");
    memcpy(&hooks.attribute, &attribute, sizeof attribute);
    memcpy(&hooks.holds_gil, &check, sizeof check);
    int found = 0;
    Py_ssize_t at = 0;
    while (PyDict_Next(functions, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        long kind = name ? PyLong_AsLong(value) : 0;
        if (!name || (kind == -1 && PyErr_Occurred())) {
            dlclose(driver);
            return NULL;
        }
        void *address = dlsym(driver, name);
        int number = address ? pointers_add(address) : -1;
        if (number >= 0) {
            hooks.kinds[number] = (Kind)kind;
            found = 1;
        }
    }
    dlclose(driver); /* who loaded it keeps it */
    if (!found) {
        return PyLong_FromLong(0);
    }
    if (start_asker()) {
        PyErr_SetString(PyExc_OSError, "no thread can be started");
        return NULL;
    }
    Py_XDECREF(hooks.before);
    hooks.before = Py_NewRef(before);
    hooks.libraries = 0;
    PyObject *count = search();
    hooks.installed = count != NULL;
    return count;
}

PyDoc_STRVAR(remove_doc, "remove()\n\nPut all pointers back, and end the thread that asks. Does nothing if nothing is installed.");

static PyObject *
remove_hooks(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (hooks.installed) {
        hooks.installed = 0;
        pointers_put_back();
        pthread_mutex_lock(&asker.lock);
        asker.ends = 1;
        pthread_cond_signal(&asker.asked);
        pthread_mutex_unlock(&asker.lock);
        Py_BEGIN_ALLOW_THREADS
        pthread_join(asker.thread, NULL);
        Py_END_ALLOW_THREADS
        asker.started = 0;
        Py_CLEAR(hooks.before);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(enter_doc,
"enter() -> int\n\nFollow this thread's calls from now on, also in libraries that were loaded since. Returns what leave()\n"
"needs. Calls may be nested.");

static PyObject *
enter(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (hooks.installed) {
        PyObject *count = search();
        if (!count) {
            return NULL;
        }
        Py_DECREF(count);
    }
    int index = thread_index();
    counters[index]++;
    return PyLong_FromLong(index);
}

PyDoc_STRVAR(leave_doc, "leave(entered)\n\nEnd what enter() began, from any thread.");

static PyObject *
leave(PyObject *self, PyObject *argument)
{
    (void)self;
    long index = PyLong_AsLong(argument);
    if (index < 0 || index >= COUNTERS) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "enter() did not return this");
        }
        return NULL;
    }
    if (counters[index] > 0) {
        counters[index]--;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(finished_doc,
"finished() -> (list[tuple[int, int]], int)\n\nThe waits that ended since the last call, as (number, ns), and how many were let\n"
"through since then because Python could not be asked in time. One wait may be in several parts.");

static PyObject *
take_finished(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    PyObject *rows = PyList_New(0);
    pthread_mutex_lock(&finished.lock);
    for (int i = 0; rows && i < finished.count; i++) {
        PyObject *row = Py_BuildValue("lK", finished.rows[i].wait, (unsigned long long)finished.rows[i].ns);
        if (!row || PyList_Append(rows, row)) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(row);
    }
    finished.count = 0;
    pthread_mutex_unlock(&finished.lock);
    return rows ? Py_BuildValue("Nl", rows, atomic_exchange(&missed, 0)) : NULL;
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, install_doc},
    {"remove", remove_hooks, METH_NOARGS, remove_doc},
    {"enter", enter, METH_NOARGS, enter_doc},
    {"leave", leave, METH_O, leave_doc},
    {"finished", take_finished, METH_NOARGS, finished_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_hooks", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC
PyInit__hooks(void)
{
    return PyModuleDef_Init(&module);
}
