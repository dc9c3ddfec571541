/* Where libraries keep addresses of the driver's functions. Private to this folder. */

#ifndef UNSTALL_SEARCH_H
#define UNSTALL_SEARCH_H

#include "_pointers.h"

#include <stddef.h>

/* What is replaced by what, sorted by `from`. */
typedef struct {
    Word from, to;
    int number;
} Exchange;

typedef struct {
    const Exchange *rows;
    int count;
    const void *const *skipped; /* addresses in libraries whose data is not searched */
    int skipped_count;
    unsigned char *found; /* by number: set to 1 if it was replaced somewhere */
} Wanted;

/* Replaces them in the writable data of all libraries. Returns 0, or -1 if the process's memory cannot be looked at. */
int search_data(const Wanted *wanted);

/* Replaces them in the table of symbols of the library that dlopen() returned. Returns 0, or an errno. */
int search_names(const Wanted *wanted, void *library);

/* The row of this value, or NULL. */
const Exchange *search_row(const Wanted *wanted, Word value);

#endif
