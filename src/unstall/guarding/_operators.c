/* Which of torch's operators a thread is in: torch exports a function at::_ops::NAME::call of each, and a redispatch. What
   an address on the stack is in is looked up once. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_operators.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FRAMES = 96, NAMES = 4096 };


static struct {
    pthread_mutex_t lock;
    struct {
        void *address;
        char name[OPERATOR_NAME]; /* "" if the address is in no operator */
        int is_python, is_allocator;
    } rows[NAMES];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Reads NAME out of _ZN2at4_ops<length>NAME4callE… or …10redispatchE…. */
static void
operator_of(const char *symbol, char *name)
{
    static const char start[] = "_ZN2at4_ops";
    name[0] = 0;
    if (!symbol || strncmp(symbol, start, sizeof start - 1)) {
        return;
    }
    char *end;
    unsigned long length = strtoul(symbol + sizeof start - 1, &end, 10);
    if (!length || length > OPERATOR_NAME - 1 || strlen(end) <= length) {
        return;
    }
    if (!strncmp(end + length, "4callE", 6) || !strncmp(end + length, "10redispatchE", 13)) {
        memcpy(name, end, length);
        name[length] = 0;
    }
}

/* Whether this is code of torch's allocator. c10's library for CUDA exports little of it: what has no other name is taken
   for the allocator's. */
static int
is_allocators(const char *library, const char *symbol)
{
    static const char *const others[] = {"stream_synchronize", "device_synchronize", "memcpy_and_sync", "CUDAStream"};
    const char *name = library ? strrchr(library, '/') : NULL;
    if (!name || strncmp(name, "/libc10_cuda.so", 15)) {
        return 0;
    }
    for (size_t i = 0; symbol && i < sizeof others / sizeof *others; i++) {
        if (strstr(symbol, others[i])) {
            return 0;
        }
    }
    return 1;
}

void
operators_here(Operators *operators)
{
    void *frames[MOST_FRAMES];
    operators->count = operators->is_allocators = 0;
    int count = backtrace(frames, MOST_FRAMES);
    pthread_mutex_lock(&known.lock);
    for (int i = 0; i < count; i++) {
        size_t at = ((uintptr_t)frames[i] * 0x9E3779B97F4A7C15u >> 52) % NAMES;
        if (known.rows[at].address != frames[i]) {
            Dl_info info;
            int found = dladdr(frames[i], &info);
            const char *symbol = found ? info.dli_sname : NULL;
            known.rows[at].is_allocator = found && is_allocators(info.dli_fname, symbol);
            known.rows[at].address = frames[i];
            known.rows[at].is_python = symbol && !strcmp(symbol, "_PyEval_EvalFrameDefault");
            operator_of(symbol, known.rows[at].name);
        }
        if (known.rows[at].is_python) {
            break;
        }
        operators->is_allocators |= known.rows[at].is_allocator;
        const char *name = known.rows[at].name;
        int last = operators->count - 1;
        if (name[0] && (last < 0 || strcmp(operators->names[last], name))) {
            /* The outermost ones matter most: of too many, the last place is overwritten. */
            last = operators->count < MOST_OPERATORS ? operators->count++ : MOST_OPERATORS - 1;
            memcpy(operators->names[last], name, OPERATOR_NAME);
        }
    }
    pthread_mutex_unlock(&known.lock);
}

void
operators_forked(void)
{
    pthread_mutex_init(&known.lock, NULL);
}
