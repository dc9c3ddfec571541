/* Where a thread's Python code is. See _position.c. */

#ifndef UNSTALL_POSITION_H
#define UNSTALL_POSITION_H

#include <stdint.h>

/* With the GIL, from a function that Python called. */
void position_begin(void);

/* A hash of where this thread's Python code is: each frame, its code and its instruction. 0 if that cannot be read. Needs
   no GIL. */
uint64_t position_here(void);

/* The same of that and a place on the C stack. */
uint64_t position_with(const void *frame);

#endif
