/* Takes the GIL for work of ours, in whatever thread.

   PyGILState_Ensure() and PyGILState_Release() are not enough: if a thread's state is being cleared, they delete it a second
   time (Python before 3.12.4, gh-119585; other libraries clear states in this way, too). A destructor that runs
   meanwhile may call what we follow. So the state of a thread that has one is only attached. */

#ifndef UNSTALL_GIL_H
#define UNSTALL_GIL_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <string.h>

typedef struct {
    enum { GIL_HELD, GIL_ATTACHED, GIL_ENSURED } how;
    PyGILState_STATE ensured;
} Gil;

/* Not in the limited API. Returns the state that is attached to this thread; NULL if it has not the GIL. */
typedef PyThreadState *(*GilCurrent)(void);

static inline GilCurrent
gil_current(void)
{
    static GilCurrent current;
    if (!current) {
        void *found = dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked"); /* from Python 3.13 on */
        found = found ? found : dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet");
        memcpy(&current, &found, sizeof current);
    }
    return current;
}

/* Unlike PyGILState_Check(), this is true if there are subinterpreters, too. */
static inline int
gil_is_held(void)
{
    GilCurrent current = gil_current();
    PyThreadState *own = PyGILState_GetThisThreadState();
    return own && current && current() == own;
}

static inline Gil
gil_take(void)
{
    PyThreadState *own = PyGILState_GetThisThreadState();
    if (!own || !gil_current()) {
        return (Gil){GIL_ENSURED, PyGILState_Ensure()};
    }
    if (gil_is_held()) {
        return (Gil){.how = GIL_HELD};
    }
    PyEval_RestoreThread(own);
    return (Gil){.how = GIL_ATTACHED};
}

static inline void
gil_leave(Gil gil)
{
    if (gil.how == GIL_ENSURED) {
        PyGILState_Release(gil.ensured);
    }
    else if (gil.how == GIL_ATTACHED) {
        PyEval_SaveThread();
    }
}

#endif
