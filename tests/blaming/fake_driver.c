/* Stands for libcuda.so.1 and libcupti.so in tests: a device that does work when it is told to.

   `fake_call` makes a call of the driver as a program would: the callback before it, its effect, the callback after it.
   A stream is a queue of marks, which `fake_run` lets the device write. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
int cuMemHostAlloc(void **host, size_t bytes, unsigned flags) { (void)flags; *host = calloc(1, bytes); return 0; }
int cuMemFreeHost(void *host) { free(host); return 0; }
int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void *graph, void *nodes, void *count)
{
    (void)graph, (void)nodes, (void)count;
    *status = capturing && (uint64_t)(uintptr_t)stream == capturing;
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
int cuStreamQuery(void *stream)
{
    for (int i = 0; i < hung_count; i++) {
        if (hung[i] == (uint64_t)(uintptr_t)stream) {
            return 600;
        }
    }
    return dead;
}
int cuCtxGetCurrent(void **context)
{
    *context = NULL;
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

int fake_call(uint32_t id, const void *parameters, const char *symbol, int result)
{
    int returned = dead ? dead : result;
    CallbackData data = {.site = 0, .parameters = parameters, .symbol = symbol, .context = (void *)1, .result = &returned};
    if (callback && enabled[id]) {
        callback(NULL, 1, id, &data);
        data.site = 1;
        callback(NULL, 1, id, &data);
    }
    return returned;
}
void fake_capture(uint64_t stream) { capturing = stream; }
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
