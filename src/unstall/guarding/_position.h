/* Where a thread's Python code is. See _position.c. */

#ifndef UNSTALL_POSITION_H
#define UNSTALL_POSITION_H

#include <stdint.h>

/* With the GIL, from a function that Python called. */
void position_begin(void);

/* A hash of where this thread's Python code is: each frame, its code and its instruction. It is the same one in all
   threads that run no Python code, and 0 if frames cannot be read. Needs no GIL. */
uint64_t position_here(void);

#endif
