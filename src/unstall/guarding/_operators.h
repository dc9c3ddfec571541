/* Which of torch's operators a thread is in, by its C++ stack. See _operators.c. */

#ifndef UNSTALL_OPERATORS_H
#define UNSTALL_OPERATORS_H

#include <stdint.h>

enum { MOST_OPERATORS = 8, OPERATOR_NAME = 64 };

/* One call of an operator, as long as it lasts. */
typedef struct {
    uintptr_t function, frame; /* where its code begins, and its frame on the stack */
    char name[OPERATOR_NAME];  /* without "aten::" */
} OperatorCall;

typedef struct {
    int count;
    OperatorCall calls[MOST_OPERATORS]; /* up to the innermost frame of Python, innermost first */
    int is_allocators;                  /* whether torch's allocator is on the stack, which holds a lock then */
} Operators;

/* Of this thread. Needs no GIL, and holds no lock when it returns. */
void operators_here(Operators *found);

/* Whether the call of the innermost operator `now` was on the stack `before`, too. */
int operators_within(const Operators *now, const Operators *before);

#endif
