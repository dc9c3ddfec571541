/* Puts functions of ours in the place of the driver's, in the pointers that libraries call it through. See _pointers.c. */

#ifndef UNSTALL_POINTERS_H
#define UNSTALL_POINTERS_H

#include <stddef.h>
#include <stdint.h>

/* As many words as the driver's longest function takes: cuLaunchKernel has eleven. */
typedef intptr_t Word;
#define PARAMETERS Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l
#define ARGUMENTS a, b, c, d, e, f, g, h, i, j, k, l
typedef Word (*Function)(PARAMETERS);

enum { MOST_FUNCTIONS = 80 };

/* Is called instead of the function with this number. Defined by the user of this file. */
Word pointers_called(int number, PARAMETERS);

/* The function itself. */
Function pointers_function(int number);

/* Gives the function at this address a number, the same one each time. Returns -1 if there are too many. */
int pointers_add(void *address);

/* Looks for pointers to the functions that were added, and replaces them. It may be called again, for libraries that
   were loaded meanwhile. Returns 0, or -1 if the process's memory cannot be looked at. Needs no GIL; one thread at a
   time. */
int pointers_replace(void);

/* How many pointers are replaced. */
size_t pointers_count(void);

/* The number of the function that the i-th of them points to. */
int pointers_number(size_t i);

/* Puts all of them back. */
void pointers_put_back(void);

/* A number that changes when a library is loaded. */
unsigned long long pointers_libraries(void);

#endif
