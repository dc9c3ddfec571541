/* Asks Python whether a thread may wait, from that thread or another. See _asking.c. */

#ifndef UNSTALL_ASKING_H
#define UNSTALL_ASKING_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_operators.h"

#include <stdint.h>

typedef struct {
    int kind;       /* of driver.py */
    intptr_t bytes; /* of a copy */
    int is_pinned;  /* whether the host's memory of that copy is */
    Operators operators;
} Question;

/* Not 0 while this thread is in a call that is asked about, or asks: calls within are not asked about. */
extern __thread int asking_depth;

/* Begins to ask before(kind, operators, bytes, is_pinned, thread, here), which returns 0 to let a wait be, -1 to refuse it,
   or a number by which after(number, ns) is told how long it was: -1 if it was not asked about in time. With the GIL.
   Returns -1 with an exception. */
int asking_begin(PyObject *before, PyObject *after, unsigned patience_ms);

/* With the GIL, which it releases meanwhile. */
void asking_end(void);

/* Without the GIL, or with it: returns what `before` did. */
long asking_before(const Question *question);

/* Keeps how long a wait was, or adds a part to what is kept of it. Takes no GIL. */
void asking_keep(long wait, uint64_t ns, int is_first);

/* Tells `after` what is kept of a wait; does nothing if finished() has told it. Takes the GIL. */
void asking_tell(long wait);

/* With the GIL: what finished() of the module returns. */
PyObject *asking_ended(void);

void asking_forked(void);

#endif
