/* CUPTI's callbacks, the functions that they need, and how libraries are loaded. The functions are declared here, so that
   building needs no CUDA. */

#ifndef UNSTALL_CALLBACKS_H
#define UNSTALL_CALLBACKS_H

#include "../lines/_frames.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* cupti_callbacks.h, the same from CUDA 11.7 to 13.5. */
enum { ENTER = 0, DRIVER_API = 1, CTX_GET_CURRENT = 304 };

typedef struct {
    int site; /* ENTER, or 1 at the exit of the call */
    const char *function;
    const void *parameters;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *data;
    uint32_t correlation;
} CallbackData;

typedef struct {
    void *library;
    int (*GetResultString)(int, const char **);
    int (*Subscribe)(void **, void (*)(void *, int, uint32_t, const CallbackData *), void *);
    int (*Unsubscribe)(void *);
    int (*EnableCallback)(uint32_t, void *, int, uint32_t);
    int (*Finalize)(void);
} Callbacks;

/* A function of a library, and where its address goes. */
typedef struct {
    const char *name;
    void *slot;
} Symbol;

/* The symbols of a Callbacks. */
#define CALLBACKS_SYMBOLS(cupti)                                                                               \
    {"cuptiGetResultString", &(cupti).GetResultString}, {"cuptiSubscribe", &(cupti).Subscribe},                \
    {"cuptiUnsubscribe", &(cupti).Unsubscribe}, {"cuptiEnableCallback", &(cupti).EnableCallback},              \
    {"cuptiFinalize", &(cupti).Finalize}

/* Loads a library, and finds its functions. Returns it, or NULL with an OSError. */
static inline void *
load_library(const char *name, const Symbol *symbols, size_t count)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        PyErr_Format(PyExc_OSError, "%s", dlerror());
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found) {
            PyErr_Format(PyExc_OSError, "%s has no %s", name, symbols[i].name);
            dlclose(library);
            return NULL;
        }
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    return library;
}

/* Returns -1 with a RuntimeError if CUPTI reported an error. */
static inline int
check_result(const Callbacks *cupti, int result, const char *what)
{
    if (!result) {
        return 0;
    }
    const char *text = NULL;
    cupti->GetResultString(result, &text);
    PyErr_Format(PyExc_RuntimeError, "%s: %s", what, text ? text : "an unknown error");
    return -1;
}

#endif
