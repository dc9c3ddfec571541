/* The clock of all recorders, which time.perf_counter_ns reads on Linux. */

#ifndef UNSTALL_CLOCK_H
#define UNSTALL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
