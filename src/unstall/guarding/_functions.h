/* Which of the functions that matter to guards an address is in. See _functions.c. */

#ifndef UNSTALL_FUNCTIONS_H
#define UNSTALL_FUNCTIONS_H

#include <stdint.h>

typedef enum {
    OTHER_FUNCTION,
    OPERATOR,   /* at::_ops::NAME::call or redispatch */
    PYTHON,     /* the interpreter */
    ALLOCATORS, /* code of torch's allocator for CUDA */
} FunctionKind;

typedef struct {
    FunctionKind kind;
    uintptr_t start, size; /* of an operator */
    const char *name;      /* of an operator, in its library's memory: not terminated */
    unsigned length;
} FunctionFound;

/* The function that an address is in. Call it between functions_lock() and functions_unlock(), which give one thread at a
   time what is known; names hold until functions_unlock(). Needs no GIL. */
FunctionFound functions_at(uintptr_t address);
void functions_lock(void);
void functions_unlock(void);

/* In a forked child: resets the lock, which a thread that no longer exists may have held. */
void functions_forked(void);

#endif
