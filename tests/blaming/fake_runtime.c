/* Stands for libcudart: it asks the driver for the addresses of its functions once, and keeps them in its own data. */

#define _GNU_SOURCE

#include "fake_functions.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t W;
typedef int (*Function)(W, W, W, W, W, W, W, W, W, W, W, W);
typedef int (*GetProcAddress)(const char *, void **, int, uint64_t, void *);

enum { DEFAULTS = 2 }; /* the program's default stream: the legacy one, or one for each thread */

static struct {
    const char *name, *asked_for;
    int version;
    Function function[DEFAULTS], given[DEFAULTS];
} functions[] = {
#define ROW(name, asked_for, since) {#name, #asked_for, since, {0}, {0}},
    FUNCTIONS(ROW, ROW)
};
enum { COUNT = sizeof functions / sizeof *functions };

static void (*fake_result)(int);

static void *asked(void *driver, const char *name)
{
    return dlsym(driver, name);
}

void runtime_load(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = asked(driver, "cuGetProcAddress_v2");
    static GetProcAddress get; /* in data, too */
    memcpy(&get, &found, sizeof get);
    get("cuGetProcAddress", &found, 12000, 1, NULL);
    memcpy(&get, &found, sizeof get);
    found = asked(driver, "fake_result");
    memcpy(&fake_result, &found, sizeof fake_result);
    for (int i = 0; i < COUNT; i++) {
        for (int at = 0; at < DEFAULTS; at++) {
            void *address = NULL;
            int version = at && functions[i].version < 7000 ? 7000 : functions[i].version;
            get(functions[i].asked_for, &address, version, at ? 2 : 1, NULL);
            memcpy(&functions[i].function[at], &address, sizeof address);
            functions[i].given[at] = (Function)((uintptr_t)functions[i].function[at] ^ 1); /* no pointer to it */
        }
    }
}

static int call(Function function, const W *a, int result)
{
    fake_result(result);
    return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

int runtime_call(const char *name, const W *arguments, int result)
{
    size_t length = strlen(name);
    int at = length > 5 && (!strcmp(name + length - 5, "_ptsz") || !strcmp(name + length - 5, "_ptds"));
    for (int i = 0; i < COUNT; i++) {
        if (strlen(functions[i].name) == length - (at ? 5 : 0) && !strncmp(functions[i].name, name, strlen(functions[i].name))) {
            return call(functions[i].function[at], arguments, result);
        }
    }
    abort();
}

/* As a library does that keeps pointers on the heap: it asks the linker, and calls. */
int runtime_call_by_name(const char *name, const W *arguments, int result)
{
    Function *kept = malloc(sizeof *kept);
    void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    memcpy(kept, &address, sizeof *kept);
    result = call(*kept, arguments, result);
    free(kept);
    return result;
}

/* How many pointers are others than those that the driver gave. */
int runtime_replaced(void)
{
    int count = 0;
    for (int i = 0; i < COUNT; i++) {
        for (int at = 0; at < DEFAULTS; at++) {
            count += (uintptr_t)functions[i].function[at] != ((uintptr_t)functions[i].given[at] ^ 1);
        }
    }
    return count;
}
