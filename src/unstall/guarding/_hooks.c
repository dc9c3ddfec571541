/* Asks a function of Python before each call to CUDA's driver that makes the host wait, and refuses the call if that
   function says so: the driver's caller gets CUDA_ERROR_NOT_PERMITTED, and nothing was waited for.

   Calls are seen through the driver's pointers (_pointers.c): of torch, and of every library that is there. Launches are
   not followed, so a loop that does not wait costs nothing. While it is switched off, a call costs one read of a flag.

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
#include <time.h>

enum { NOT_PERMITTED = 800, MEMORY_OF_HOST = 1, MEMORY_TYPE = 2 }; /* cuda.h: CUresult, CUmemorytype, CUpointer_attribute */
enum { MOST_FRAMES = 96, NAMES = 4096, NAME = 64, MOST_NESTED = 8, FINISHED = 256 };

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
    PyObject *before, *after;
    int (*holds_gil)(void);
    unsigned patience_ms; /* how long a thread waits for Python's answer */
    unsigned long long libraries;
    int installed;
} hooks;

static _Atomic int is_on;
static _Atomic long missed;

typedef struct {
    Kind kind; /* 0: none */
    Word stream, bytes;
    int asked; /* whether Python was asked about it, since it waits */
} Copy;

static __thread struct {
    int depth; /* of calls within calls, and of Python that is asked: only the outermost counts */
    Copy before; /* the call before, if that was an asynchronous copy */
} mine;

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

typedef struct {
    Kind kind;
    Word bytes;           /* of a copy */
    unsigned long thread; /* as threading.get_ident() */
    int is_allocators;    /* torch's allocator makes the call */
    int count;
    char operators[MOST_NESTED][NAME]; /* those that this thread is in, up to the innermost frame of Python, innermost first */
} Question;

static void
look_at_stack(Question *question)
{
    void *frames[MOST_FRAMES];
    int count = backtrace(frames, MOST_FRAMES);
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
        question->is_allocators |= known.rows[at].is_allocator;
        const char *name = known.rows[at].name;
        int last = question->count - 1;
        if (name[0] && (last < 0 || strcmp(question->operators[last], name))) {
            /* The outermost ones matter most: of too many, the last place is overwritten. */
            last = question->count < MOST_NESTED ? question->count++ : MOST_NESTED - 1;
            memcpy(question->operators[last], name, NAME);
        }
    }
    pthread_mutex_unlock(&known.lock);
}

/* ---- asking Python ---- */

/* Calls a function of Python, and returns its answer, 0 if it fails. The program's exception, if any, stays. */
static long
call(PyObject *function, PyObject *arguments)
{
    PyObject *answer = function && arguments ? PyObject_CallObject(function, arguments) : NULL;
    long result = answer ? PyLong_AsLong(answer) : 0;
    Py_XDECREF(answer);
    Py_XDECREF(arguments);
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(function);
        result = 0;
    }
    return result;
}

/* Returns 0: let it through; < 0: refuse; else the number by which its duration is told. */
static long
ask_here(const Question *question, int here)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *operators = PyTuple_New(question->count);
    for (int i = 0; operators && i < question->count; i++) { /* outermost first */
        PyTuple_SetItem(operators, question->count - 1 - i, PyUnicode_FromFormat("aten::%s", question->operators[i]));
    }
    long answer = call(hooks.before, Py_BuildValue("(iNnki)", (int)question->kind, operators, (Py_ssize_t)question->bytes,
                                                   question->thread, here));
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
    return answer;
}

static void
tell_here(long wait, uint64_t ns)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    call(hooks.after, Py_BuildValue("(lK)", wait, (unsigned long long)ns));
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
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

/* Durations of waits within torch's allocator. Python takes them later. */
static struct {
    pthread_mutex_t lock;
    struct {
        long wait;
        uint64_t ns;
    } rows[FINISHED];
    int count;
} finished = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
tell_later(long wait, uint64_t ns)
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

/* Makes the call if Python lets it be. */
static Word
asked(const Question *question, Function function, PARAMETERS)
{
    int is_locked = question->is_allocators && !(hooks.holds_gil && hooks.holds_gil());
    long wait = is_locked ? ask_by_other_thread(question) : ask_here(question, 1);
    if (wait < 0) {
        return NOT_PERMITTED;
    }
    uint64_t start = now();
    Word result = function(ARGUMENTS);
    uint64_t ns = now() - start;
    if (wait && is_locked) {
        tell_later(wait, ns);
    }
    else if (wait) {
        tell_here(wait, ns);
    }
    return result;
}

Word
pointers_called(int number, PARAMETERS)
{
    Function function = pointers_function(number);
    if (!atomic_load_explicit(&is_on, memory_order_relaxed) || mine.depth) {
        return function(ARGUMENTS);
    }
    Kind kind = hooks.kinds[number];
    Copy before = mine.before;
    mine.before = (Copy){0};
    if (kind >= TO_DEVICE_ASYNC) {
        mine.before = (Copy){kind, d, c, waits(kind, a, b)};
        if (!mine.before.asked) {
            return function(ARGUMENTS);
        }
    }
    mine.depth++;
    Question question = {.kind = kind, .bytes = kind >= TO_DEVICE ? c : 0, .thread = (unsigned long)pthread_self()};
    look_at_stack(&question);
    /* An operator ends its copy by waiting for the stream. */
    int ends_copy = kind == STREAM && before.kind && before.stream == a && question.count;
    if (ends_copy) {
        question.kind = before.kind;
        question.bytes = before.bytes;
    }
    Word result = ends_copy && before.asked ? function(ARGUMENTS) : asked(&question, function, ARGUMENTS);
    if (result == NOT_PERMITTED) {
        mine.before = (Copy){0};
    }
    mine.depth--;
    return result;
}

/* ---- the module ---- */

/* In a forked child nothing is guarded, as CUDA is not usable there, and the thread that asks does not exist. */
static void
forked(void)
{
    is_on = hooks.installed = 0;
    asker.started = 0;
    pthread_mutex_init(&asker.turn, NULL);
    pthread_mutex_init(&asker.lock, NULL);
    pthread_mutex_init(&known.lock, NULL);
    pthread_mutex_init(&finished.lock, NULL);
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

/* Looks for pointers in libraries that were loaded since. Returns -1 with an exception. */
static int
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
    }
    return failed;
}

PyDoc_STRVAR(install_doc,
"install(library, functions, before, after, patience_ms) -> int\n\n"
"Follow these functions of a library, a dict of kinds by name. Returns how many pointers to them were found. While it is\n"
"switched on, before(kind, operators, bytes, thread, here) is called before each wait, and returns 0 to let the wait be,\n"
"-1 to refuse it, or a number: then after(number, ns) is called after it. If not `here`, another thread than the one that waits\n"
"asks, and finished() tells the duration; the wait is let through if there is no answer in time. Returns 0 if the library\n"
"is not loaded. Raises OSError if the process's memory cannot be looked at.");

static PyObject *
install(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *library;
    PyObject *functions, *before, *after, *key, *value;
    if (!PyArg_ParseTuple(arguments, "sO!OOI", &library, &PyDict_Type, &functions, &before, &after,
                          &hooks.patience_ms)) {
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
        return PyLong_FromLong(0);
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
    Py_XDECREF(hooks.after);
    hooks.before = Py_NewRef(before);
    hooks.after = Py_NewRef(after);
    hooks.libraries = 0;
    hooks.installed = 1;
    return search() ? NULL : PyLong_FromSize_t(pointers_count());
}

PyDoc_STRVAR(remove_doc, "remove()\n\nPut all pointers back, and end the thread that asks. Does nothing if nothing is installed.");

static PyObject *
remove_hooks(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (hooks.installed) {
        is_on = hooks.installed = 0;
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
        Py_CLEAR(hooks.after);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(switch_doc,
"switch(on)\n\nAsk about waits from now on, also in libraries that were loaded since; or no more.");

static PyObject *
switch_hooks(PyObject *self, PyObject *on)
{
    (void)self;
    int wanted = PyObject_IsTrue(on);
    if (wanted < 0 || (wanted && hooks.installed && search())) {
        return NULL;
    }
    is_on = wanted && hooks.installed;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(finished_doc,
"finished() -> (list[tuple[int, int]], int)\n\nThe waits within torch's allocator that ended since the last call, as (number,\n"
"ns), and how many were let through since then because Python could not be asked in time.");

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
    {"switch", switch_hooks, METH_O, switch_doc},
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
