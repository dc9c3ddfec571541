/* Lets guards and --blame follow the driver's calls: functions of ours stand in the place of the driver's, in the pointers
   that libraries call it through. One module has them all, `unstall.driver._pointers`, and hands this table over. */

#ifndef UNSTALL_POINTERS_H
#define UNSTALL_POINTERS_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* As many words as the driver's longest function takes: cuLaunchKernel has eleven. */
typedef intptr_t Word;
#define PARAMETERS Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l
#define ARGUMENTS a, b, c, d, e, f, g, h, i, j, k, l
enum { WORDS = 12, MOST_FUNCTIONS = 600 };

/* Is called instead of the function with this number. */
typedef Word (*Called)(int number, PARAMETERS);

typedef struct {
    const char *name; /* as cuda.h has it, without _ptsz and _ptds */
    int since;        /* the version of CUDA that this form of it came with: cudaTypedefs.h */
} NamedFunction;

/* `per_thread`: whether stream 0 is the thread's own default stream. */
typedef void (*Told)(int number, int per_thread, const void *argument);

/* Who follows calls, in the order in which they are called: what guards refuse is never work. */
typedef enum { GUARDING, BLAMING, USERS } User;

/* Nothing here needs the GIL. */
typedef struct {
    /* Lets the user follow a function, in each form that it has: the dynamic linker and cuGetProcAddress may know others,
       and there is one for the default stream of each thread. Calls `told` with the number of each, always the same. None
       may take or return floating point. `driver` is what dlopen() returned. Returns whether there is any. */
    int (*add)(User user, void *driver, const NamedFunction *function, Told told, const void *argument);

    /* The driver's function if the address is that of ours in its place, else the address. */
    void *(*original)(void *address);

    /* Lets `called` be called for the functions that the user has added. Replaces the pointers that there are to them, and
       lets the driver's library give functions of ours to those who ask for them from now on: by dlsym, by a dynamic
       link, or by cuGetProcAddress. `driver` stays open until the user leaves. Returns NULL, or why that cannot be; guards
       go on without what is asked for by dlsym or a dynamic link. */
    const char *(*follow)(User user, Called called, void *driver);

    /* Calls the next user, or the function itself. */
    Word (*go_on)(User user, int number, PARAMETERS);

    /* Whether somebody has a pointer to ours in place of this function. */
    int (*is_found)(int number);

    /* Calls the user's function no more. If nobody is left who follows, all is put back. */
    void (*leave)(User user);
} Pointers;

#define POINTERS_CAPSULE "unstall.driver._pointers.API"

/* With the GIL. Returns NULL with an exception if the module is not built. */
static inline const Pointers *
pointers_import(void)
{
    PyObject *module = PyImport_ImportModule("unstall.driver._pointers");
    PyObject *capsule = module ? PyObject_GetAttrString(module, "API") : NULL;
    const Pointers *pointers = capsule ? PyCapsule_GetPointer(capsule, POINTERS_CAPSULE) : NULL;
    Py_XDECREF(capsule);
    Py_XDECREF(module); /* it stays: the functions are its own */
    return pointers;
}

#endif
