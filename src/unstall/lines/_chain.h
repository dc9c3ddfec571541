/* A thread's chain of Python frames, in that thread and without the GIL: while it runs C code called from Python, nothing
   else changes the chain. Only pointers of the chain itself are dereferenced. */

#ifndef UNSTALL_CHAIN_H
#define UNSTALL_CHAIN_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { MOST_STEPS = 2048 }; /* frames followed */

/* Where frames are, which depends on Python's version (pycore_frame.h, pystate.h). Check it against Python before use. */
typedef struct {
    size_t frame_of_thread; /* in PyThreadState: the frame, or see `indirect` */
    size_t indirect;        /* 1: a pointer to a struct with the frame at `frame_in_it` */
    size_t frame_in_it;
    size_t code, previous, instruction; /* in _PyInterpreterFrame */
    size_t code_start;                  /* of the instructions in PyCodeObject */
} Layout;

/* Returns NULL if the layout is unknown, as before a first release candidate. */
static inline const Layout *
layout_of(unsigned long version)
{
    static const struct {
        int minor;
        Layout layout;
    } layouts[] = {
        {11, {56, 1, 8, 32, 48, 56, 184}},
        {12, {56, 1, 0, 0, 8, 56, 192}},
        {13, {72, 0, 0, 0, 8, 56, 200}},
    };
    for (size_t i = 0; version >> 24 == 3 && (version & 0xF0) >= 0xC0 && i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i].minor == (int)(version >> 16 & 0xFF)) {
            return &layouts[i].layout;
        }
    }
    return NULL;
}

static inline const char *
pointer_at(const char *base, size_t offset)
{
    const char *pointer;
    memcpy(&pointer, base + offset, sizeof pointer);
    return pointer;
}

/* Returns the innermost frame of a thread, a PyThreadState; NULL if it has none. */
static inline const char *
innermost_frame(const Layout *where, const void *thread)
{
    const char *frame = pointer_at((const char *)thread, where->frame_of_thread);
    return where->indirect && frame ? pointer_at(frame, where->frame_in_it) : frame;
}

/* Adds a word to a hash of a chain. */
static inline uint64_t
chain_mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

#endif
