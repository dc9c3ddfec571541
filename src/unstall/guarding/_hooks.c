/* Asks a function of Python before each call to CUDA's driver that makes the host wait, and refuses the call if that
   function says so: the driver's caller gets CUDA_ERROR_NOT_PERMITTED, and nothing was waited for.

   Calls are seen through the driver's pointers (../driver/_pointers.h): of torch, and of every library that is there.
   Launches are not followed, so a loop that does not wait costs nothing. While it is switched off, a call costs one read
   of a flag. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_asking.h"
#include "_operators.h"
#include "_position.h"

#include "../driver/_pointers.h"
#include "../lines/_clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { NOT_PERMITTED = 800, MEMORY_TYPE = 2 }; /* cuda.h: CUresult, CUpointer_attribute */

/* What a function does, and where its arguments are. The same numbers are in driver.py. */
typedef enum {
    STREAM = 1,      /* waits for a stream: the first argument */
    EVENT,           /* waits for an event */
    DEVICE,          /* waits for all streams */
    ALLOCATE,        /* allocates device memory */
    FREE,            /* frees some */
    CREATE,          /* allocates a piece of a segment of memory */
    ENDS_ROW,        /* comes behind the last piece; does not wait */
    TO_DEVICE,       /* copies from the host's memory, the second argument, and waits; the third is the number of bytes */
    TO_HOST,         /* copies to the host's memory, the first argument, and waits */
    ANY,             /* copies, and waits; either may be the host's */
    TO_DEVICE_ASYNC, /* copies that wait if the host's memory is pageable; the fourth argument is the stream */
    TO_HOST_ASYNC,
    ANY_ASYNC,
} Kind;

static const Pointers *pointers;

static struct {
    Kind kinds[MOST_FUNCTIONS];
    int (*attribute)(void *data, int attribute, uint64_t pointer); /* cuPointerGetAttribute */
    void *driver; /* as dlopen() returned it */
    int installed;
} hooks;

static _Atomic int is_on;

/* This thread's last call, of which the next one may be a part: the synchronization that ends a copy, or one more call for
   memory in a row. */
typedef struct {
    Kind kind;
    unsigned generation;
    Word stream, bytes;       /* of a copy */
    int is_pinned, does_wait; /* the host's memory of a copy; whether it waits even if nothing ends it */
    OperatorCalls calls;      /* that a copy is in */
    uint64_t position;        /* of Python; 0 if it is not known */
    long wait;                /* what Python said: < 0 refused, 0 let be, else the number by which its duration is told */
} Before;

enum { MOST_STAGED_BYTES = 64 << 10 };

static __thread Before before;
static _Atomic unsigned generation; /* grows whenever it is switched on */

static int
comes_in_rows(Kind kind)
{
    return kind == FREE || kind == CREATE;
}

/* Whether a call is one more of a row that the same instruction of Python makes: of memory that is given back, or of a
   segment's pieces. A loop that gives memory back at each turn allocates some in between. If Python's position is not
   known, only the pieces are taken for a row: another call comes behind the last one. */
static int
goes_on_with_row(Kind kind)
{
    return comes_in_rows(kind) && before.kind == kind && before.generation == generation && before.wait &&
           (before.position || kind == CREATE) && before.position == position_here();
}

/* Whether a call is the wait by which an operator ends its copy: that call of the operator has not returned since. So the
   Python code that called it stands still. */
static int
ends_copy(Kind kind, Word stream, const OperatorCalls *calls)
{
    return kind == STREAM && before.kind >= TO_DEVICE_ASYNC && before.generation == generation &&
           before.stream == stream && operators_within(calls, &before.calls) && before.position == position_here();
}

static int
is_pageable(Word pointer)
{
    unsigned type = 0;
    return !hooks.attribute || hooks.attribute(&type, MEMORY_TYPE, (uint64_t)pointer) != 0;
}

/* Whether the host's memory of an asynchronous copy is pageable. */
static int
is_copy_pageable(Kind kind, Word a, Word b)
{
    return (kind != TO_HOST_ASYNC && is_pageable(b)) || (kind != TO_DEVICE_ASYNC && is_pageable(a));
}

/* Tells how long the last call's wait was, unless a part of it may follow: then it is told at the next call, or as a guard
   is left. Takes the GIL, so not within the allocator. */
static void
tell_wait(int is_allocators)
{
    if (before.wait > 0 && !is_allocators) {
        asking_tell(before.wait);
        before.wait = 0;
    }
}

/* Makes the call, which is the last call's wait or a part of it. */
static Word
made(int is_first, int number, PARAMETERS)
{
    uint64_t start = now();
    Word result = pointers->go_on(GUARDING, number, ARGUMENTS);
    if (before.wait > 0) {
        asking_keep(before.wait, now() - start, is_first);
    }
    return result;
}

/* Makes the call if Python lets it be.

   A call that ends a copy is made even if it is refused: the copy is under way, and torch gives its memory back. So are
   calls that free memory, and those of the allocator that wait: torch makes them in destructors, which must not throw. The
   guard raises its error later. */
static Word
made_if_allowed(const Question *question, int is_copys_end, int number, PARAMETERS)
{
    int allocates = question->kind == ALLOCATE || question->kind == CREATE;
    int must_be = question->kind == FREE || (question->operators.is_allocators && !allocates);
    before.wait = asking_before(question);
    int is_refused = before.wait < 0 && !must_be;
    if (is_refused && !is_copys_end) {
        before.kind = 0; /* nothing is a part of what was not made */
        return NOT_PERMITTED;
    }
    Word result = made(1, number, ARGUMENTS);
    return is_refused ? NOT_PERMITTED : result;
}

static Word
made_as_end_of_copy(Question *question, int number, PARAMETERS)
{
    Word result;
    if (before.does_wait) { /* Python was asked about that */
        result = made(0, number, ARGUMENTS);
    }
    else {
        question->kind = before.kind;
        question->bytes = before.bytes;
        question->is_pinned = before.is_pinned;
        result = made_if_allowed(question, 1, number, ARGUMENTS);
    }
    tell_wait(question->operators.is_allocators);
    before.kind = 0;
    return result;
}

/* Makes a copy that does not wait, though what follows may wait for it. */
static Word
made_without_wait(Kind kind, int is_pinned, int number, PARAMETERS)
{
    tell_wait(0);
    before.kind = kind;
    before.generation = generation;
    before.stream = d;
    before.bytes = c;
    before.is_pinned = is_pinned;
    before.does_wait = 0;
    before.position = position_here();
    operators_called_from((uintptr_t)__builtin_frame_address(0), &before.calls);
    return pointers->go_on(GUARDING, number, ARGUMENTS);
}

/* Makes a call that waits, and is no part of the last one's wait. */
static Word
made_alone(const Question *question, int number, PARAMETERS)
{
    int is_allocators = question->operators.is_allocators, is_copy = question->kind >= TO_DEVICE_ASYNC;
    tell_wait(is_allocators);
    before.kind = question->kind;
    before.generation = generation;
    before.stream = d;
    before.does_wait = 1;
    before.calls = question->operators.calls;
    before.position = position_here();
    Word result = made_if_allowed(question, 0, number, ARGUMENTS);
    if (!is_copy && !comes_in_rows(question->kind)) {
        tell_wait(is_allocators);
    }
    return result;
}

static Word
called(int number, PARAMETERS)
{
    if (!atomic_load_explicit(&is_on, memory_order_relaxed) || asking_depth || !PyGILState_GetThisThreadState()) {
        /* Also in threads that Python does not know: nobody can guard them. */
        return pointers->go_on(GUARDING, number, ARGUMENTS);
    }
    Kind kind = hooks.kinds[number];
    if (kind == ENDS_ROW) {
        before.kind = before.kind == CREATE ? 0 : before.kind;
        return pointers->go_on(GUARDING, number, ARGUMENTS);
    }
    int is_copy = kind >= TO_DEVICE_ASYNC, is_pinned = is_copy && !is_copy_pageable(kind, a, b);
    Word result;
    asking_depth++;
    if (goes_on_with_row(kind)) {
        result = made(0, number, ARGUMENTS);
    }
    else if (is_pinned || (kind == TO_DEVICE_ASYNC && c <= MOST_STAGED_BYTES)) {
        result = made_without_wait(kind, is_pinned, number, ARGUMENTS);
    }
    else {
        Question question = {.kind = kind, .bytes = kind >= TO_DEVICE ? c : 0};
        operators_here(&question.operators);
        result = ends_copy(kind, a, &question.operators.calls) ? made_as_end_of_copy(&question, number, ARGUMENTS)
                                                               : made_alone(&question, number, ARGUMENTS);
    }
    asking_depth--;
    return result;
}

/* In a forked child nothing is guarded, as CUDA is not usable there, and the thread that asks does not exist. */
static void
forked(void)
{
    is_on = hooks.installed = 0;
    asking_forked();
}

/* The kinds to which pointers were found, as a set. */
static PyObject *
found_kinds(void)
{
    PyObject *kinds = PySet_New(NULL);
    for (int number = 0; kinds && number < MOST_FUNCTIONS; number++) {
        if (!hooks.kinds[number] || !pointers->is_found(number)) {
            continue;
        }
        PyObject *kind = PyLong_FromLong(hooks.kinds[number]);
        if (!kind || PySet_Add(kinds, kind)) {
            Py_CLEAR(kinds);
        }
        Py_XDECREF(kind);
    }
    return kinds;
}

static void
note_kind(int number, int per_thread, const void *kind)
{
    (void)per_thread;
    hooks.kinds[number] = *(const Kind *)kind;
}

PyDoc_STRVAR(install_doc,
"install(library, functions, before, after, patience_ms) -> set[int]\n\n"
"Follow these functions of a library: a dict of (kind, since which version of CUDA) by name. Returns the kinds to which\n"
"there are pointers: none if the library is not loaded. While it is switched on, before(kind, operators, bytes,\n"
"is_pinned, thread, here) is called before each wait, and returns 0 to let the wait be, -1 to refuse it, or a number: then\n"
"after(number, ns) is called after it, or finished() tells. If not `here`, another thread than the one that waits asks; the\n"
"wait is let through if there is no answer in time. Raises OSError if the process's memory cannot be looked at.");

static PyObject *
install(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *library;
    PyObject *functions, *asks, *tells, *key, *value;
    unsigned patience_ms;
    if (!PyArg_ParseTuple(arguments, "sO!OOI", &library, &PyDict_Type, &functions, &asks, &tells, &patience_ms)) {
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
        return PySet_New(NULL);
    }
    void *attribute = dlsym(driver, "cuPointerGetAttribute");
    memcpy(&hooks.attribute, &attribute, sizeof attribute);
    int found = 0;
    Py_ssize_t at = 0;
    while (PyDict_Next(functions, &at, &key, &value)) {
        NamedFunction function = {.name = PyUnicode_AsUTF8AndSize(key, NULL)};
        int kind;
        if (!function.name || !PyArg_ParseTuple(value, "ii", &kind, &function.since)) {
            dlclose(driver);
            return NULL;
        }
        found |= pointers->add(GUARDING, driver, &function, note_kind, &(Kind){(Kind)kind});
    }
    const char *why = NULL;
    if (found) {
        Py_BEGIN_ALLOW_THREADS
        why = pointers->follow(GUARDING, called, driver);
        Py_END_ALLOW_THREADS
    }
    if (why) {
        PyErr_SetString(PyExc_OSError, why);
    }
    if (!found || why || asking_begin(asks, tells, patience_ms)) {
        pointers->leave(GUARDING);
        dlclose(driver);
        return found ? NULL : PySet_New(NULL);
    }
    position_begin();
    hooks.driver = driver;
    hooks.installed = 1;
    return found_kinds();
}

PyDoc_STRVAR(remove_doc, "remove()\n\nPut all pointers back, and end the thread that asks. Does nothing if nothing is installed.");

static PyObject *
remove_hooks(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (hooks.installed) {
        is_on = hooks.installed = 0;
        Py_BEGIN_ALLOW_THREADS
        pointers->leave(GUARDING);
        Py_END_ALLOW_THREADS
        dlclose(hooks.driver);
        asking_end();
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(switch_doc,
"switch(on)\n\nAsk about waits from now on, or no more.");

static PyObject *
switch_hooks(PyObject *self, PyObject *on)
{
    (void)self;
    int wanted = PyObject_IsTrue(on);
    if (wanted < 0) {
        return NULL;
    }
    generation += (unsigned)wanted;
    is_on = wanted && hooks.installed;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(finished_doc,
"finished() -> (list[tuple[int, int]], int)\n\nThe waits that are over and were not told since the last call, as (number,\n"
"ns), and how many were let through since then because Python could not be asked in time.");

static PyObject *
take_finished(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    before.kind = 0; /* what this thread does next is a wait of its own */
    return asking_ended();
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, install_doc},
    {"remove", remove_hooks, METH_NOARGS, remove_doc},
    {"switch", switch_hooks, METH_O, switch_doc},
    {"finished", take_finished, METH_NOARGS, finished_doc},
    {NULL, NULL, 0, NULL},
};

static int
find_pointers(PyObject *module)
{
    (void)module;
    pointers = pointers_import();
    return pointers ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, find_pointers}, {0, NULL}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_hooks", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC
PyInit__hooks(void)
{
    return PyModuleDef_Init(&module);
}
