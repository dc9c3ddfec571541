/* Reads a thread's Python stack, in that thread and without the GIL. See _frames.c. */

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

/* Returns a hash of a pointer with well-mixed low bits: those of the pointer itself are always 0. */
static inline size_t
frames_hash(const void *pointer)
{
    uint64_t mixed = (uint64_t)(uintptr_t)pointer * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed ^ mixed >> 32);
}

enum { NO_PYTHON = -1, NO_FRAME = -2 };

/* Returns the number of the calling thread's stack of registered code: NO_PYTHON if Python does not know the thread,
   NO_FRAME if none of its frames is registered. Does not take the GIL. */
int32_t frames_here(void);

/* The same for all code: takes the GIL to register missing code. The caller must hold no lock. */
int32_t frames_here_all(void);

/* A frame of registered code: the code's number, from 0, and the offset of its instruction in bytes. */
typedef struct {
    uint32_t code, offset;
} FramePlace;

/* Copies the frames of this stack, innermost first, at most `most` of them. Returns how many. Needs no GIL. */
uint32_t frames_stack(int32_t number, FramePlace *places, uint32_t most);

/* If set, is called with the GIL for code that is registered, before its number is in any stack. */
extern void (*frames_on_new)(uint32_t number, PyObject *code);

/* Registers this code. Returns 1 if it is new, 0 if not, -1 with an exception. Needs the GIL. */
int frames_know(PyObject *code);

/* Returns the stacks from number `first` on, as lists of (code, offset in bytes), innermost frame first. */
PyObject *frames_stacks(uint32_t first);

/* Returns whether frames can be read in this version of Python. */
int frames_supported(void);

/* In a forked child: resets the lock, which a thread that no longer exists may have held. */
void frames_forked(void);

/* Forgets all code and stacks. No thread may call frames_here meanwhile. */
void frames_forget(void);

#endif
