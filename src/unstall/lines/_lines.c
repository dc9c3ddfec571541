/* The line clock in C: records which line of the user's code each thread is on. Its reference implementation,
   reference.py, defines its behaviour; clock.py describes the file that both write.

   The functions are callbacks for sys.monitoring (from Python 3.12 on) or sys.settrace. They keep a stack of the user's
   frames for each thread, so that after a call returns the caller's line is the current one again, and write an entry
   of 16 bytes whenever the current line changes. All run under the GIL. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(Py_GIL_DISABLED) || defined(PYPY_VERSION)
#error "this needs CPython with its GIL"
#endif

#include "_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* The file is mapped into memory, so on 32-bit machines it is limited to 1 GiB. */
#define MOST_CAPACITY (SIZE_MAX > UINT32_MAX ? UINT64_C(1) << 32 : UINT64_C(1) << 26)

enum { HEADER_BYTES = 4096, MOST_DEPTH = UINT16_MAX, MOST_THREADS = UINT16_MAX, NOWHERE = -1 };

typedef struct {
    int64_t time;  /* CLOCK_MONOTONIC, ns */
    int32_t place; /* NOWHERE: not in the user's code */
    uint16_t thread, depth;
} Entry;

typedef struct {
    char magic[8];
    uint64_t capacity;        /* entries */
    _Atomic uint64_t written; /* in all: the ring holds the last `capacity` of them */
} Header;

_Static_assert(sizeof(Entry) == 16 && sizeof(Header) == 24, "lines.py says what the file looks like");

typedef struct {
    PyObject *code; /* borrowed: `codes` keeps it */
    int32_t place;
} Frame;

typedef struct Thread {
    struct Thread *next;
    uint64_t native_id;
    uint16_t index;
    Frame *stack;
    uint32_t depth, room;
} Thread;

typedef struct {
    PyObject *code; /* a strong reference: its address stays its own */
    int is_users;
} Code;

typedef struct {
    PyObject *code;
    int64_t number; /* a line; 0: the function's beginning; -1 - offset of the instruction where it resumes */
    int32_t place;
} Place;

typedef struct {
    int on;
    uint64_t epoch; /* number of the start(): pointers that threads keep are valid for one only */
    Header *header;
    Entry *entries;
    size_t map_bytes;
    Thread *threads;
    uint32_t thread_count;
    Code *codes;
    size_t code_count, code_room;
    Place *places;
    size_t place_count, place_room;
    PyObject *wants, *describe, *new_thread, *disable;
} Clock;

static Clock clock_;

static __thread Thread *mine;
static __thread uint64_t mine_epoch;

static uint64_t
native_id(void)
{
#ifdef __linux__
    return (uint64_t)syscall(SYS_gettid);
#elif defined(__APPLE__)
    uint64_t id = 0;
    pthread_threadid_np(NULL, &id);
    return id;
#else
    return (uint64_t)(uintptr_t)pthread_self();
#endif
}

static size_t
mixed(const void *pointer, int64_t number)
{
    uint64_t x = ((uint64_t)(uintptr_t)pointer >> 4) ^ ((uint64_t)number * 0x9E3779B97F4A7C15u);
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (size_t)(x ^ (x >> 32));
}

static Code *
slot_of_code(Code *table, size_t room, PyObject *code)
{
    size_t at = mixed(code, 0) & (room - 1);
    while (table[at].code && table[at].code != code) {
        at = (at + 1) & (room - 1);
    }
    return &table[at];
}

static Place *
slot_of_place(Place *table, size_t room, PyObject *code, int64_t number)
{
    size_t at = mixed(code, number) & (room - 1);
    while (table[at].code && (table[at].code != code || table[at].number != number)) {
        at = (at + 1) & (room - 1);
    }
    return &table[at];
}

/* While Python code runs, another thread may stop the clock, and even restart it. The caller then finds that its clock
   is gone, and fails without an exception. */
static int
gone_since(uint64_t epoch)
{
    return !clock_.on || clock_.epoch != epoch;
}

/* Returns 1 if the code is the user's, 0 if not, -1 on failure. */
static int
is_users(PyObject *code)
{
    Code *slot = slot_of_code(clock_.codes, clock_.code_room, code);
    if (slot->code) {
        return slot->is_users;
    }
    uint64_t epoch = clock_.epoch;
    PyObject *answer = PyObject_CallFunctionObjArgs(clock_.wants, code, NULL);
    int users = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (users < 0 || gone_since(epoch)) {
        return -1;
    }
    if (4 * ++clock_.code_count >= 3 * clock_.code_room) {
        size_t room = 2 * clock_.code_room;
        Code *wider = PyMem_Calloc(room, sizeof *wider);
        if (!wider) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t i = 0; i < clock_.code_room; i++) {
            if (clock_.codes[i].code) {
                *slot_of_code(wider, room, clock_.codes[i].code) = clock_.codes[i];
            }
        }
        PyMem_Free(clock_.codes);
        clock_.codes = wider;
        clock_.code_room = room;
    }
    slot = slot_of_code(clock_.codes, clock_.code_room, code);
    if (!slot->code) {
        *slot = (Code){Py_NewRef(code), users};
    }
    return users;
}

enum { FAILED = -2 };

static int32_t
place_of(PyObject *code, int64_t number)
{
    Place *slot = slot_of_place(clock_.places, clock_.place_room, code, number);
    if (slot->code) {
        return slot->place;
    }
    uint64_t epoch = clock_.epoch;
    int32_t place = (int32_t)clock_.place_count++;
    PyObject *done = PyObject_CallFunction(clock_.describe, "iOL", (int)place, code, (long long)number);
    Py_XDECREF(done);
    if (!done || gone_since(epoch)) {
        return FAILED;
    }
    if (4 * clock_.place_count >= 3 * clock_.place_room) {
        size_t room = 2 * clock_.place_room;
        Place *wider = PyMem_Calloc(room, sizeof *wider);
        if (!wider) {
            PyErr_NoMemory();
            return FAILED;
        }
        for (size_t i = 0; i < clock_.place_room; i++) {
            const Place *old = &clock_.places[i];
            if (old->code) {
                *slot_of_place(wider, room, old->code, old->number) = *old;
            }
        }
        PyMem_Free(clock_.places);
        clock_.places = wider;
        clock_.place_room = room;
    }
    slot = slot_of_place(clock_.places, clock_.place_room, code, number);
    if (!slot->code) {
        *slot = (Place){code, number, place};
    }
    return slot->place;
}

static Thread *
thread_of(uint64_t id)
{
    Thread *thread = clock_.threads;
    while (thread && thread->native_id != id) {
        thread = thread->next;
    }
    if (thread) {
        return thread;
    }
    if (clock_.thread_count >= MOST_THREADS) {
        PyErr_SetString(PyExc_RuntimeError, "more threads than the line clock can tell apart");
        return NULL;
    }
    if (!(thread = PyMem_Calloc(1, sizeof *thread))) {
        PyErr_NoMemory();
        return NULL;
    }
    thread->native_id = id;
    thread->index = (uint16_t)clock_.thread_count++;
    thread->next = clock_.threads;
    clock_.threads = thread;
    uint64_t epoch = clock_.epoch;
    PyObject *done = PyObject_CallFunction(clock_.new_thread, "iK", (int)thread->index, (unsigned long long)id);
    Py_XDECREF(done);
    return done && !gone_since(epoch) ? thread : NULL;
}

static Thread *
my_thread(void)
{
    if (mine_epoch != clock_.epoch) {
        if (!(mine = thread_of(native_id()))) {
            return NULL;
        }
        mine_epoch = clock_.epoch;
    }
    return mine;
}

static void
note(const Thread *thread)
{
    uint64_t written = clock_.header->written, at = written % clock_.header->capacity;
    uint32_t depth = thread->depth;
    clock_.entries[at] = (Entry){
        (int64_t)now(), depth ? thread->stack[depth - 1].place : NOWHERE, thread->index,
        (uint16_t)(depth < MOST_DEPTH ? depth : MOST_DEPTH),
    };
    /* Written after the entry: the process may be killed in between. */
    atomic_store_explicit(&clock_.header->written, written + 1, memory_order_release);
}

static int
push(Thread *thread, PyObject *code, int64_t number)
{
    int32_t place = place_of(code, number);
    if (place == FAILED) {
        return -1;
    }
    if (thread->depth == thread->room) {
        uint32_t room = thread->room ? 2 * thread->room : 64;
        Frame *wider = PyMem_Realloc(thread->stack, room * sizeof *wider);
        if (!wider) {
            PyErr_NoMemory();
            return -1;
        }
        thread->stack = wider;
        thread->room = room;
    }
    thread->stack[thread->depth++] = (Frame){code, place};
    return 0;
}

static int
enter(PyObject *code, int64_t number)
{
    Thread *thread = my_thread();
    if (!thread || push(thread, code, number)) {
        return -1;
    }
    note(thread);
    return 0;
}

/* Sets the line of this code's frame. Frames above it must have ended. */
static int
go_to(PyObject *code, int64_t number)
{
    Thread *thread = my_thread();
    if (!thread) {
        return -1;
    }
    uint32_t depth = thread->depth;
    while (depth && thread->stack[depth - 1].code != code) {
        depth--;
    }
    if (!depth) {
        return push(thread, code, number) ? -1 : (note(thread), 0);
    }
    int32_t place = place_of(code, number);
    if (place == FAILED) {
        return -1;
    }
    thread->depth = depth;
    thread->stack[depth - 1].place = place;
    note(thread);
    return 0;
}

static int
leave(PyObject *code)
{
    Thread *thread = my_thread();
    if (!thread) {
        return -1;
    }
    uint32_t depth = thread->depth;
    while (depth && thread->stack[depth - 1].code != code) {
        depth--;
    }
    if (depth) {
        thread->depth = depth - 1;
        note(thread);
    }
    return 0;
}

/* Errors here are never the program's: they go to sys.unraisablehook, and the clock stops. Only a BaseException that is
   no Exception, such as Ctrl-C, is passed on: Python may handle signals within the clock's own functions. */
static PyObject *
done(int failed)
{
    if (failed && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return NULL;
        }
        clock_.on = 0;
        PyErr_WriteUnraisable(clock_.wants);
    }
    Py_RETURN_NONE;
}

static int
arguments(Py_ssize_t count, Py_ssize_t least)
{
    if (count >= least) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", least, count);
    return -1;
}

static PyObject *
py_start(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (arguments(count, 2)) {
        return NULL;
    }
    if (!clock_.on) {
        Py_RETURN_NONE;
    }
    int users = is_users(args[0]);
    if (!users) {
        return Py_NewRef(clock_.disable);
    }
    return done(users < 0 || enter(args[0], 0));
}

static PyObject *
resume(PyObject *const *args, int may_disable)
{
    if (!clock_.on) {
        Py_RETURN_NONE;
    }
    int users = is_users(args[0]);
    if (!users && may_disable) {
        return Py_NewRef(clock_.disable);
    }
    long long offset = users > 0 ? PyLong_AsLongLong(args[1]) : 0;
    return done(users < 0 || (users && (PyErr_Occurred() || enter(args[0], -1 - offset))));
}

static PyObject *
py_resume(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    return arguments(count, 2) ? NULL : resume(args, 1);
}

static PyObject *
py_throw(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    return arguments(count, 2) ? NULL : resume(args, 0);
}

static PyObject *
line(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (arguments(count, 2)) {
        return NULL;
    }
    if (!clock_.on) {
        Py_RETURN_NONE;
    }
    long long number = PyLong_AsLongLong(args[1]);
    return done(PyErr_Occurred() || go_to(args[0], number));
}

static PyObject *
py_return(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (arguments(count, 1)) {
        return NULL;
    }
    if (!clock_.on) {
        Py_RETURN_NONE;
    }
    return done(leave(args[0]));
}

static PyObject *
py_unwind(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (arguments(count, 1)) {
        return NULL;
    }
    if (!clock_.on) {
        Py_RETURN_NONE;
    }
    int users = is_users(args[0]);
    return done(users < 0 || (users && leave(args[0])));
}

static PyObject *trace_function; /* the Python object of `trace`, set as f_trace of frames */

/* Each thread must end its own tracing: the clock may be stopped on another thread. */
static void
trace_no_more(void)
{
    PyObject *get = PySys_GetObject("gettrace"), *set = PySys_GetObject("settrace");
    PyObject *traced_by = get ? PyObject_CallNoArgs(get) : NULL;
    PyObject *ended = set && traced_by == trace_function ? PyObject_CallFunctionObjArgs(set, Py_None, NULL) : NULL;
    Py_XDECREF(ended);
    Py_XDECREF(traced_by);
    PyErr_Clear();
}

static PyObject *
trace(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (arguments(count, 2)) {
        return NULL;
    }
    if (!clock_.on) {
        trace_no_more();
        Py_RETURN_NONE;
    }
    PyFrameObject *frame = (PyFrameObject *)args[0];
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    int failed = 0, users = is_users(code);
    if (users > 0) {
        if (!PyUnicode_CompareWithASCIIString(args[1], "call")) {
            failed = enter(code, PyFrame_GetLineNumber(frame));
        }
        else if (!PyUnicode_CompareWithASCIIString(args[1], "line")) {
            failed = go_to(code, PyFrame_GetLineNumber(frame));
        }
        else if (!PyUnicode_CompareWithASCIIString(args[1], "return")) {
            failed = leave(code);
        }
    }
    Py_DECREF(code);
    if (users > 0 && !failed) {
        return Py_NewRef(trace_function);
    }
    return done(users < 0 || failed);
}

static void
forget(void)
{
    Clock old = clock_;
    clock_ = (Clock){.epoch = old.epoch};
    /* From here on, freeing objects may run Python code, which may restart the clock. */
    if (old.header) {
        munmap(old.header, old.map_bytes);
    }
    PyMem_Free(old.places);
    while (old.threads) {
        Thread *thread = old.threads;
        old.threads = thread->next;
        PyMem_Free(thread->stack);
        PyMem_Free(thread);
    }
    for (size_t i = 0; old.codes && i < old.code_room; i++) {
        Py_XDECREF(old.codes[i].code);
    }
    PyMem_Free(old.codes);
    Py_XDECREF(old.wants);
    Py_XDECREF(old.describe);
    Py_XDECREF(old.new_thread);
    Py_XDECREF(old.disable);
}

/* Allocates disk blocks now: writing to a hole on a full disk would raise SIGBUS. Returns 0 or an errno. */
static int
reserve(int file, size_t bytes)
{
#ifdef __linux__
    int error;
    do {
        error = posix_fallocate(file, 0, (off_t)bytes);
    } while (error == EINTR);
    return error;
#else
    return ftruncate(file, (off_t)bytes) ? errno : 0;
#endif
}

static int
open_ring(const char *path, unsigned long long capacity)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
        return -1;
    }
    size_t bytes = HEADER_BYTES + (size_t)capacity * sizeof(Entry);
    int error = reserve(file, bytes);
    if (!error) {
        void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        error = map == MAP_FAILED ? errno : 0;
        clock_.header = error ? NULL : map;
    }
    close(file);
    if (error) {
        unlink(path); /* it may have used up the disk */
        errno = error;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
        return -1;
    }
    madvise(clock_.header, bytes, MADV_POPULATE_WRITE);
    clock_.map_bytes = bytes;
    clock_.entries = (Entry *)((char *)clock_.header + HEADER_BYTES);
    memcpy(clock_.header->magic, "unstall1", 8);
    clock_.header->capacity = capacity;
    return 0;
}

/* Reads the stacks of running threads: a list of (native id, [(code, line), …]), outermost frame first. */
static int
seed(PyObject *stacks)
{
    Py_ssize_t count = PyList_Size(stacks);
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long id;
        PyObject *frames;
        if (!PyArg_ParseTuple(PyList_GetItem(stacks, i), "KO", &id, &frames)) {
            return -1;
        }
        Thread *thread = thread_of(id);
        Py_ssize_t depth = thread ? PyList_Size(frames) : -1;
        for (Py_ssize_t j = 0; j < depth; j++) {
            PyObject *code;
            long long number;
            if (!PyArg_ParseTuple(PyList_GetItem(frames, j), "OL", &code, &number)) {
                return -1;
            }
            int users = is_users(code);
            if (users < 0 || (users && push(thread, code, number))) {
                return -1;
            }
            if (users) {
                note(thread); /* one entry per frame */
            }
        }
        if (depth < 0) {
            return -1;
        }
    }
    return count < 0 ? -1 : 0;
}

PyDoc_STRVAR(start_doc,
"start(path, capacity, stacks, wants, describe, new_thread, disable) -> None\n\n"
"Write entries to a new file, the last `capacity` of them. See reference.ReferenceLineClock.");

/* In a forked child: the file is the parent's. Python's own hook, pause(), runs only after other hooks. */
static void
forked(void)
{
    clock_.on = 0;
}

static int
watch_forks(void)
{
    static int watched;
    if (!watched && pthread_atfork(NULL, NULL, forked)) {
        PyErr_SetString(PyExc_RuntimeError, "the process's forks cannot be watched");
        return -1;
    }
    watched = 1;
    return 0;
}

static PyObject *
start(PyObject *self, PyObject *arguments_)
{
    (void)self;
    PyObject *path = NULL;
    unsigned long long capacity;
    PyObject *stacks, *wants, *describe, *new_thread, *disable;
    if (!PyArg_ParseTuple(arguments_, "O&KO!OOOO", PyUnicode_FSConverter, &path, &capacity, &PyList_Type, &stacks, &wants,
                          &describe, &new_thread, &disable)) {
        return NULL;
    }
    if (clock_.header) {
        PyErr_SetString(PyExc_RuntimeError, "the line clock is running already");
    }
    else if (!capacity || capacity > MOST_CAPACITY) {
        PyErr_Format(PyExc_ValueError, "capacity must be from 1 to 2**%d entries", SIZE_MAX > UINT32_MAX ? 32 : 26);
    }
    else if (!watch_forks() && !open_ring(PyBytes_AsString(path), capacity)) {
        clock_.code_room = clock_.place_room = 1024;
        clock_.codes = PyMem_Calloc(clock_.code_room, sizeof *clock_.codes);
        clock_.places = PyMem_Calloc(clock_.place_room, sizeof *clock_.places);
        clock_.wants = Py_NewRef(wants);
        clock_.describe = Py_NewRef(describe);
        clock_.new_thread = Py_NewRef(new_thread);
        clock_.disable = Py_NewRef(disable);
        uint64_t epoch = ++clock_.epoch;
        clock_.on = clock_.codes && clock_.places;
        if (!clock_.on) {
            PyErr_NoMemory();
        }
        else if (seed(stacks) && !PyErr_Occurred()) {
            PyErr_SetString(PyExc_RuntimeError, "the line clock was stopped as it began");
        }
        if (PyErr_Occurred() && clock_.epoch == epoch) {
            forget();
        }
    }
    Py_DECREF(path);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stop_doc, "stop() -> int\n\nClose the file. How many entries were written in all.");

static PyObject *
stop(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (!clock_.header) {
        PyErr_SetString(PyExc_RuntimeError, "the line clock is not running");
        return NULL;
    }
    unsigned long long written = clock_.header->written;
    forget();
    return PyLong_FromUnsignedLongLong(written);
}

PyDoc_STRVAR(pause_doc, "pause() -> None\n\nWrite no more, but keep the file: a forked child shares it with its parent.");

static PyObject *
pause_(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    clock_.on = 0;
    Py_RETURN_NONE;
}

#define CALLBACK(name, text) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, text}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, start_doc},
    {"stop", stop, METH_NOARGS, stop_doc},
    {"pause", pause_, METH_NOARGS, pause_doc},
    CALLBACK(py_start, "py_start(code, offset)\n\nFor sys.monitoring."),
    CALLBACK(py_resume, "py_resume(code, offset)\n\nFor sys.monitoring."),
    CALLBACK(py_throw, "py_throw(code, offset, exception)\n\nFor sys.monitoring."),
    CALLBACK(line, "line(code, line)\n\nFor sys.monitoring."),
    CALLBACK(py_return, "py_return(code, offset, value)\n\nFor sys.monitoring, and for PY_YIELD."),
    CALLBACK(py_unwind, "py_unwind(code, offset, exception)\n\nFor sys.monitoring."),
    CALLBACK(trace, "trace(frame, event, arg)\n\nFor sys.settrace."),
    {NULL, NULL, 0, NULL},
};

static int
prepare(PyObject *self)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "a process is recorded by its main interpreter alone");
        return -1;
    }
    Py_XDECREF(trace_function);
    trace_function = PyObject_GetAttrString(self, "trace");
    return trace_function ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_lines", .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__lines(void)
{
    return PyModuleDef_Init(&module);
}
