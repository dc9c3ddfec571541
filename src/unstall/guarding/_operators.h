/* Which of torch's operators a thread is in, by its C++ stack. See _operators.c. */

#ifndef UNSTALL_OPERATORS_H
#define UNSTALL_OPERATORS_H

enum { MOST_OPERATORS = 8, OPERATOR_NAME = 64 };

typedef struct {
    int count;
    char names[MOST_OPERATORS][OPERATOR_NAME]; /* up to the innermost frame of Python, innermost first, without "aten::" */
    int is_allocators;                         /* whether torch's allocator is on the stack, which holds a lock then */
} Operators;

/* Of this thread. Needs no GIL, and holds no lock when it returns. */
void operators_here(Operators *found);

/* In a forked child: resets the lock, which a thread that no longer exists may have held. */
void operators_forked(void);

#endif
