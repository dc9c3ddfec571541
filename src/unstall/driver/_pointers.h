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

/* Who follows calls, in the order in which they are called: what guards refuse is never work. */
typedef enum { GUARDING, BLAMING, USERS } User;

/* Nothing here needs the GIL. */
typedef struct {
    /* Gives the function at this address a number, the same one each time. None may take or return floating point.
       Returns -1 if there are too many. */
    int (*add)(User user, void *address);

    /* The driver's function if the address is that of ours in its place, else the address. */
    void *(*original)(void *address);

    /* Lets `called` be called for the functions that the user has added. Looks for pointers to them, and replaces these.
       It may be called again, for libraries that were loaded meanwhile. Returns 0, or -1 if the process's memory cannot
       be looked at. */
    int (*follow)(User user, Called called);

    /* Lets the driver's library give functions of ours to those who ask for them from now on: by dlsym, by a dynamic link,
       or by cuGetProcAddress. `driver` is what dlopen() returned. Returns 0, or an errno. */
    int (*follow_names)(void *driver);

    /* Calls the next user, or the function itself. */
    Word (*go_on)(User user, int number, PARAMETERS);

    /* Whether a pointer to this function was found and replaced. */
    int (*is_found)(int number);

    /* Calls the user's function no more. If nobody is left who follows, all is put back. */
    void (*leave)(User user);

    /* A number that changes when a library is loaded. */
    unsigned long long (*libraries)(void);
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
