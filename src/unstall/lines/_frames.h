/* Where a thread is in Python, read without the GIL by the thread itself. See _frames.c. */

#ifndef UNSTALL_FRAMES_H
#define UNSTALL_FRAMES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#if defined(Py_GIL_DISABLED) || defined(PYPY_VERSION)
#error "this needs CPython with its GIL"
#endif

/* A hash of a pointer whose low bits are good: of pointers themselves those are always 0. */
static inline size_t
frames_hash(const void *pointer)
{
    uint64_t mixed = (uint64_t)(uintptr_t)pointer * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed ^ mixed >> 32);
}

enum { NO_PYTHON = -1, NO_FRAME = -2 };

/* The number of the calling thread's stack of known code; NO_PYTHON for a thread that Python does not know, NO_FRAME
   where none of its frames is known. Takes no GIL; only for the thread that calls it. */
int32_t frames_here(void);

/* The same, of all code: what is not known becomes so, for which the GIL is taken. The caller holds no lock. */
int32_t frames_here_all(void);

/* Know this code from now on. 1: it was not known before; 0: it was; -1: with an exception. Needs the GIL. */
int frames_know(PyObject *code);

/* The stacks from number `first` on, as a list of lists of (code, offset in bytes), innermost frame first. */
PyObject *frames_stacks(uint32_t first);

/* Whether frames can be read in this version of Python. */
int frames_supported(void);

/* In a forked child: a thread that is not there any more may have held the lock. */
void frames_forked(void);

/* Forget all code and stacks: nothing may call frames_here meanwhile. */
void frames_forget(void);

#endif
