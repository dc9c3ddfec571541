/* Stands for libcuda.so.1 and libcupti.so in tests: a device that does work when it is told to.

   `fake_call` makes a call of the driver as a program would: the callback before it, its effect, the callback after it.
   A stream is a queue of marks, which `fake_run` lets the device write. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    int site;
    const char *function;
    const void *parameters;
    const void *result;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *data;
    uint32_t correlation;
} CallbackData;

enum { MOST = 1 << 16 };

static void (*callback)(void *, int, uint32_t, const CallbackData *);
static unsigned char enabled[1024];
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

int cuptiGetResultString(int result, const char **text) { (void)result; *text = "fake"; return 0; }
int cuptiSubscribe(void **subscriber, void *function, void *data)
{
    (void)data;
    *subscriber = &callback;
    memcpy(&callback, &function, sizeof callback);
    return 0;
}
int cuptiUnsubscribe(void *subscriber) { (void)subscriber; callback = NULL; return 0; }
int cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t id)
{
    (void)subscriber, (void)domain;
    enabled[id] = (unsigned char)on;
    return 0;
}
int cuptiFinalize(void) { callback = NULL; return 0; }

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
    if (callback && enabled[304]) {
        CallbackData data = {.site = 1};
        callback(NULL, 1, 304, &data);
    }
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

/* What a call does between the callbacks before and after it. */
static void effect(uint32_t id, const void *parameters, int result)
{
    uint64_t handle;
    memcpy(&handle, parameters, sizeof handle);
    if (id == 495 && !result) { /* cuStreamBeginCapture */
        capturing = handle;
        invalidated = 0;
    }
    else if (id == 497 && result != 903) { /* cuStreamEndCapture: 903 if the capture was begun on another stream */
        capturing = 0;
    }
    else if ((id == 322 && handle == 1) || id == 545 || (id == 544 && !primary_active)) { /* a context is destroyed */
        free_memory();
    }
}

int fake_call(uint32_t id, const void *parameters, const char *symbol, int result)
{
    int returned = dead ? dead : result;
    CallbackData data = {.site = 0, .parameters = parameters, .symbol = symbol,
                         .context = (void *)(uintptr_t)current, .result = &returned};
    if (callback && enabled[id]) {
        callback(NULL, 1, id, &data);
    }
    effect(id, parameters, returned);
    if (callback && enabled[id]) {
        data.site = 1;
        callback(NULL, 1, id, &data);
    }
    return returned;
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
int fake_subscribed(void) { return callback != NULL; }

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
