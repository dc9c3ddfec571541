/* Where a thread's Python code is, so that calls that one instruction makes can be told from those of two. */

#include "_position.h"

#include "../lines/_chain.h"

static const Layout *layout; /* of frames; NULL if it is not known */

void
position_begin(void)
{
    const Layout *known = layout_of(Py_Version);
    const char *innermost = known ? innermost_frame(known, PyThreadState_Get()) : NULL;
    PyFrameObject *frame = PyEval_GetFrame();
    PyObject *code = frame ? (PyObject *)PyFrame_GetCode(frame) : NULL;
    layout = innermost && code && pointer_at(innermost, known->code) == (const char *)code ? known : NULL;
    Py_XDECREF(code);
}

uint64_t
position_here(void)
{
    const void *thread = PyGILState_GetThisThreadState();
    if (!layout || !thread) {
        return 0;
    }
    const char *frame = innermost_frame(layout, thread);
    uint64_t hash = 0;
    for (int left = MOST_STEPS; frame && left; left--, frame = pointer_at(frame, layout->previous)) {
        hash = chain_mixed(hash, (uintptr_t)frame);
        hash = chain_mixed(hash, (uintptr_t)pointer_at(frame, layout->code));
        hash = chain_mixed(hash, (uintptr_t)pointer_at(frame, layout->instruction));
    }
    return hash | 1;
}
