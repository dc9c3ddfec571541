/* Which of torch's operators a thread is in, by its C++ stack. See _operators.c. */

#ifndef UNSTALL_OPERATORS_H
#define UNSTALL_OPERATORS_H

#include <stdint.h>

enum { MOST_OPERATORS = 8, OPERATOR_NAME = 64 };

/* Calls of operators, as long as they last: where each one's code begins, and its frame on the stack. Up to the innermost
   frame of Python, innermost first. */
typedef struct {
    int count;
    struct {
        uintptr_t function, frame;
    } rows[MOST_OPERATORS];
} OperatorCalls;

typedef struct {
    OperatorCalls calls;
    char names[MOST_OPERATORS][OPERATOR_NAME]; /* of each, without "aten::" */
    int is_allocators;                         /* whether torch's allocator is on the stack, which holds a lock then */
} Operators;

/* Of this thread. Needs no GIL, and holds no lock when it returns. */
void operators_here(Operators *found);

/* The calls alone, from this frame of the calling function outward. A stack that was read not long ago is known again by
   its return addresses: 0.1 µs instead of 10. */
void operators_called_from(uintptr_t frame, OperatorCalls *found);

/* Whether the innermost call of `now` was under way `before`, too. */
int operators_within(const OperatorCalls *now, const OperatorCalls *before);

#endif
