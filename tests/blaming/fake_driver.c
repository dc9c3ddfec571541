/* Stands for libcuda.so.1 in tests: a device that does work when it is told to.

   Programs call the functions that cuGetProcAddress answers with, which do what `made` says, and return what `fake_result`
   was told. --blame calls those that the library exports. A stream is a queue of marks, which `fake_run` lets the device
   write. */

#include "fake_functions.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int64_t W;

enum { MOST = 1 << 16 };

static struct {
    uint64_t stream, address;
    uint32_t value;
} queue[MOST];
static int queued, ran, registered, waited;
static uint64_t capturing; /* the stream in capture, whose id is 77; 78 for streams of our own */
static int refuses;        /* what pinning returns */
static int dead;           /* what every call returns */
static uint64_t hung[8];   /* streams that are not done */
static int hung_count;
static int asked;               /* queries of streams */
static volatile int stuck;      /* whether queries do not return */
static int invalidated;         /* whether the capture is */
static uint64_t current = 1;    /* the context */
static int primary_active = 1;
static void *allocated;         /* memory of the driver's, which goes with its context */
static size_t allocated_bytes;

int cuStreamWriteValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags)
{
    (void)flags;
    queue[queued].stream = (uint64_t)(uintptr_t)stream;
    queue[queued].address = address;
    queue[queued++].value = value;
    return dead;
}
int cuStreamSynchronize(void *stream) { (void)stream; waited++; return dead; }
int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    (void)address, (void)bytes, (void)flags;
    registered += !refuses;
    return refuses;
}
int cuMemHostUnregister(void *address) { (void)address; registered--; return dead; }
int cuMemHostGetDevicePointer_v2(uint64_t *device, void *host, unsigned flags)
{
    (void)flags;
    *device = (uint64_t)(uintptr_t)host;
    return 0;
}
int cuMemHostAlloc(void **host, size_t bytes, unsigned flags)
{
    (void)flags;
    allocated_bytes = bytes;
    *host = allocated = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return 0;
}
int cuMemFreeHost(void *host) { return munmap(host, allocated_bytes); }
int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void *graph, void *nodes, void *count)
{
    (void)graph, (void)nodes, (void)count;
    *status = capturing && (uint64_t)(uintptr_t)stream == capturing ? 1 + invalidated : 0;
    *id = 77;
    return 0;
}
int cuThreadExchangeStreamCaptureMode(int *mode) { (void)mode; return 0; }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = (void *)0x9999; return 0; }
int cuStreamDestroy_v2(void *stream) { (void)stream; return 0; }
int cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream, (void)mode; return 0; }
int cuStreamEndCapture(void *stream, void **graph) { (void)stream; *graph = NULL; return 0; }
int cuGraphDestroy(void *graph) { (void)graph; return 0; }
int cuCtxPushCurrent_v2(void *context) { (void)context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = NULL; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = primary_active;
    return 0;
}
int cuStreamQuery(void *stream)
{
    asked++;
    while (stuck) {
        usleep(10000);
    }
    for (int i = 0; i < hung_count; i++) {
        if (hung[i] == (uint64_t)(uintptr_t)stream) {
            return 600;
        }
    }
    return dead;
}
int cuCtxGetCurrent(void **context)
{
    *context = (void *)(uintptr_t)current;
    return 0;
}

int cuDriverGetVersion(int *version)
{
    const char *told = getenv("FAKE_VERSION");
    *version = told ? atoi(told) : 13000;
    return 0;
}

static void free_memory(void)
{
    mprotect(allocated, allocated_bytes, PROT_NONE); /* who reads it crashes */
}

static int next_result;
void fake_result(int result) { next_result = result; }

/* A call of the program's. */
static int made(const char *name, uint64_t handle)
{
    int result = dead ? dead : next_result;
    if (!strcmp(name, "cuStreamBeginCapture") && !result) {
        capturing = handle;
        invalidated = 0;
    }
    else if (!strcmp(name, "cuStreamEndCapture") && result != 903) { /* 903 if it was begun on another stream */
        capturing = 0;
    }
    else if ((!strcmp(name, "cuCtxDestroy_v2") && handle == 1) || !strcmp(name, "cuDevicePrimaryCtxReset_v2") ||
             (!strcmp(name, "cuDevicePrimaryCtxRelease_v2") && !primary_active)) { /* a context is destroyed */
        free_memory();
    }
    return result;
}

#define DEFINE_ANSWERED(name, asked_for, since) \
    static int answered_##name(W a) { return made(#name, (uint64_t)a); } \
    static int answered_##name##_per_thread(W a) { return made(#name, (uint64_t)a); }
#define DEFINE(name, asked_for, since) \
    DEFINE_ANSWERED(name, asked_for, since) \
    int name(W a) { return made(#name, (uint64_t)a); } \
    int name##_ptsz(W a) { return made(#name, (uint64_t)a); }
FUNCTIONS(DEFINE, DEFINE_ANSWERED)

/* The newest form of the function that this version has. What it answers for itself is another address than its own. */
static int answered_get(const char *name, void **address, int version, uint64_t flags, void *status)
{
    if (!strcmp(name, "cuGetProcAddress")) {
        *address = (void *)answered_get;
        return 0;
    }
    static const struct {
        const char *name;
        int since, (*function)(W), (*per_thread)(W);
    } rows[] = {
#define ROW(name, asked_for, since) {#asked_for, since, answered_##name, answered_##name##_per_thread},
        FUNCTIONS(ROW, ROW)
    };
    int found = 0;
    (void)status;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strcmp(rows[i].name, name) && rows[i].since <= version && rows[i].since > found) {
            found = rows[i].since;
            memcpy(address, flags == 2 ? &rows[i].per_thread : &rows[i].function, sizeof *address);
        }
    }
    return found ? 0 : 500;
}
int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, void *status)
{
    return answered_get(name, address, version, flags, status);
}

/* A handle for a kernel of this name, which is told by cuFuncGetName, or by cuKernelGetName if it begins with "library". */
const char *fake_function(const char *name)
{
    static char *names[1024];
    static int count;
    for (int i = 0; i < count; i++) {
        if (!strcmp(names[i], name)) {
            return names[i];
        }
    }
    return names[count++] = strdup(name);
}
static int name_asked;
int fake_name_asked(void) { return name_asked; }
int cuFuncGetName(const char **name, const char *function)
{
    *name = function;
    name_asked++;
    return strncmp(function, "library", 7) ? dead : 400;
}
int cuKernelGetName(const char **name, const char *kernel)
{
    *name = kernel;
    return dead;
}
void fake_capture(uint64_t stream) { capturing = stream; }
void fake_invalidate(void) { invalidated = 1; }
void fake_current(uint64_t context) { current = context; }
void fake_last_release(void) { primary_active = 0; }
void fake_stick(void) { stuck = 1; }
int fake_asked(void) { return asked; }
void fake_refuse(int code) { refuses = code; }
void fake_die(int code) { dead = code; }
void fake_hang(uint64_t stream) { hung[hung_count++] = stream; }
void fake_go_on(void) { hung_count = 0; }
int fake_queued(void) { return queued; }
int fake_registered(void) { return registered; }
int fake_waited(void) { return waited; }

/* Lets the device do the marks of this stream up to and with the `count`-th from now on. */
void fake_run(uint64_t stream, int count)
{
    for (int i = ran; i < queued && count; i++) {
        if (queue[i].stream == stream && queue[i].address) {
            memcpy((void *)(uintptr_t)queue[i].address, &queue[i].value, 4);
            queue[i].address = 0;
            count--;
        }
    }
}
