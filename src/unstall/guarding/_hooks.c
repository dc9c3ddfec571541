/* Asks a function of Python before each call to CUDA's driver that makes the host wait, and refuses the call if that
   function says so: the driver's caller gets CUDA_ERROR_NOT_PERMITTED, and nothing was waited for.

   Calls are seen through the driver's pointers (_pointers.c): of torch, and of every library that is there. Launches are
   not followed, so a loop that does not wait costs nothing. While it is switched off, a call costs one read of a flag. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_asking.h"
#include "_operators.h"
#include "_pointers.h"

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
    TO_DEVICE,       /* copies from the host's memory, the second argument, and waits; the third is the number of bytes */
    TO_HOST,         /* copies to the host's memory, the first argument, and waits */
    ANY,             /* copies, and waits; either may be the host's */
    TO_DEVICE_ASYNC, /* copies that wait if the host's memory is pageable; the fourth argument is the stream */
    TO_HOST_ASYNC,
    ANY_ASYNC,
} Kind;

static struct {
    Kind kinds[MOST_FUNCTIONS];
    int (*attribute)(void *data, int attribute, uint64_t pointer); /* cuPointerGetAttribute */
    unsigned long long libraries;
    int installed;
} hooks;

static _Atomic int is_on;

typedef struct {
    Kind kind; /* 0: none */
    Word stream, bytes;
    int asked; /* whether Python was asked about it, since it waits */
} Copy;

static __thread Copy copy_before; /* this thread's call before, if that was an asynchronous copy */

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
    int later;
    long wait = asking_before(question, &later);
    if (wait < 0) {
        return NOT_PERMITTED;
    }
    uint64_t start = now();
    Word result = function(ARGUMENTS);
    uint64_t ns = now() - start;
    if (wait) {
        asking_after(wait, ns, later);
    }
    return result;
}

Word
pointers_called(int number, PARAMETERS)
{
    Function function = pointers_function(number);
    if (!atomic_load_explicit(&is_on, memory_order_relaxed) || asking_depth) {
        return function(ARGUMENTS);
    }
    Kind kind = hooks.kinds[number];
    Copy before = copy_before;
    copy_before = (Copy){0};
    if (kind >= TO_DEVICE_ASYNC) {
        copy_before = (Copy){kind, d, c, waits(kind, a, b)};
        if (!copy_before.asked) {
            return function(ARGUMENTS);
        }
    }
    asking_depth++;
    Question question = {.kind = kind, .bytes = kind >= TO_DEVICE ? c : 0};
    operators_here(&question.operators);
    /* An operator ends its copy by waiting for the stream. */
    int ends_copy = kind == STREAM && before.kind && before.stream == a && question.operators.count;
    if (ends_copy) {
        question.kind = before.kind;
        question.bytes = before.bytes;
    }
    Word result = ends_copy && before.asked ? function(ARGUMENTS) : asked(&question, function, ARGUMENTS);
    if (result == NOT_PERMITTED) {
        copy_before = (Copy){0};
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
"-1 to refuse it, or a number: then after(number, ns) is called after it. If not `here`, another thread than the one that\n"
"waits asks, and finished() tells the duration; the wait is let through if there is no answer in time. Returns 0 if the\n"
"library is not loaded. Raises OSError if the process's memory cannot be looked at.");

static PyObject *
install(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *library;
    PyObject *functions, *before, *after, *key, *value;
    unsigned patience_ms;
    if (!PyArg_ParseTuple(arguments, "sO!OOI", &library, &PyDict_Type, &functions, &before, &after, &patience_ms)) {
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
    void *attribute = dlsym(driver, "cuPointerGetAttribute");
    memcpy(&hooks.attribute, &attribute, sizeof attribute);
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
    if (asking_begin(before, after, patience_ms)) {
        return NULL;
    }
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
        asking_end();
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
    return asking_ended();
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
