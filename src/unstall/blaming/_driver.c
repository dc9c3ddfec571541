/* The functions of _driver.h. */

#include "_driver.h"

#include "_calls.h"
#include "_marks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct {
    void *library;
    int (*StreamWriteValue32)(void *, uint64_t, uint32_t, unsigned);
    int (*StreamSynchronize)(void *);
    int (*MemHostRegister)(void *, size_t, unsigned);
    int (*MemHostUnregister)(void *);
    int (*MemHostGetDevicePointer)(uint64_t *, void *, unsigned);
    int (*MemHostAlloc)(void **, size_t, unsigned);
    int (*MemFreeHost)(void *);
    int (*CaptureInfo)(void *, int *, uint64_t *, void *, void *, void *);
    int (*ExchangeCaptureMode)(int *);
    int (*StreamCreate)(void **, unsigned);
    int (*StreamDestroy)(void *);
    int (*StreamBeginCapture)(void *, int);
    int (*StreamEndCapture)(void *, void **);
    int (*GraphDestroy)(void *);
    int (*CtxGetCurrent)(void **);
    int (*CtxPushCurrent)(void *);
    int (*CtxPopCurrent)(void **);
    int (*StreamQuery)(void *);
    int (*PrimaryState)(int, unsigned *, int *);
    int (*FuncGetName)(const char **, uint64_t); /* these since CUDA 12.3 */
    int (*KernelGetName)(const char **, uint64_t);
} cuda;

static const struct {
    const char *name;
    void *slot;
} symbols[] = {
    {"cuStreamWriteValue32_v2", &cuda.StreamWriteValue32}, {"cuStreamSynchronize", &cuda.StreamSynchronize},
    {"cuMemHostRegister_v2", &cuda.MemHostRegister},       {"cuMemHostUnregister", &cuda.MemHostUnregister},
    {"cuMemHostGetDevicePointer_v2", &cuda.MemHostGetDevicePointer}, {"cuMemHostAlloc", &cuda.MemHostAlloc},
    {"cuStreamGetCaptureInfo_v2", &cuda.CaptureInfo},      {"cuThreadExchangeStreamCaptureMode", &cuda.ExchangeCaptureMode},
    {"cuStreamCreate", &cuda.StreamCreate},                {"cuStreamDestroy_v2", &cuda.StreamDestroy},
    {"cuStreamBeginCapture_v2", &cuda.StreamBeginCapture}, {"cuStreamEndCapture", &cuda.StreamEndCapture},
    {"cuGraphDestroy", &cuda.GraphDestroy},                {"cuCtxGetCurrent", &cuda.CtxGetCurrent},
    {"cuCtxPushCurrent_v2", &cuda.CtxPushCurrent},         {"cuCtxPopCurrent_v2", &cuda.CtxPopCurrent},
    {"cuStreamQuery", &cuda.StreamQuery},                  {"cuMemFreeHost", &cuda.MemFreeHost},
    {"cuDevicePrimaryCtxGetState", &cuda.PrimaryState},
    {"cuFuncGetName", &cuda.FuncGetName},                  {"cuKernelGetName", &cuda.KernelGetName},
};

enum { SYMBOLS = sizeof symbols / sizeof *symbols, NEEDED = SYMBOLS - 2 };

static struct {
    pthread_mutex_t lock;
    int state; /* 0: not tried, 1: pinned, -1: not possible */
    int registered, error;
    void *host, *instead; /* instead: memory of the driver's, if the map cannot be pinned; copied to it after an error */
    uint64_t device, bytes;
    void *context;      /* which `instead` belongs to */
    int being_released; /* calls under way that may free `instead`; under agent_hold() */
} slots = {.lock = PTHREAD_MUTEX_INITIALIZER};

void *
driver_load(const Pointers *pointers)
{
    if (cuda.library) {
        return cuda.library;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        PyErr_Format(PyExc_OSError, "%s", dlerror());
        return NULL;
    }
    for (int i = 0; i < SYMBOLS; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found && i < NEEDED) {
            PyErr_Format(PyExc_OSError, "libcuda.so.1 has no %s", symbols[i].name);
            dlclose(library);
            return NULL;
        }
        found = found ? pointers->original(found) : NULL;
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    return cuda.library = library;
}

enum { MEMORY_PORTABLE_MAPPED = 3 };

/* Lets the device write to the slots. In relaxed mode, since a capture may be under way. */
static int
pin_slots(void)
{
    pthread_mutex_lock(&slots.lock);
    if (!slots.state) {
        int mode = 2, exchanged = cuda.ExchangeCaptureMode(&mode);
        slots.host = marks_slots(&slots.bytes);
        slots.error = slots.host ? cuda.MemHostRegister(slots.host, slots.bytes, MEMORY_PORTABLE_MAPPED) : -1;
        slots.registered = !slots.error;
        void *at = slots.host;
        if (slots.error && slots.host) {
            slots.error = cuda.MemHostAlloc(&slots.instead, slots.bytes, MEMORY_PORTABLE_MAPPED);
            at = slots.instead = slots.error ? NULL : slots.instead;
            cuda.CtxGetCurrent(&slots.context);
        }
        if (!slots.error) {
            memset(at, 0, slots.bytes);
            slots.error = cuda.MemHostGetDevicePointer(&slots.device, at, 0);
        }
        slots.state = slots.error ? -1 : 1;
        marks_note(PINNED_BY, slots.error ? REFUSED + (uint32_t)slots.error : slots.instead ? 2 : 1);
        if (!exchanged) {
            cuda.ExchangeCaptureMode(&mode);
        }
    }
    int result = slots.state > 0 ? 0 : slots.error;
    pthread_mutex_unlock(&slots.lock);
    return result;
}

void
driver_keep_slots(void)
{
    uint64_t bytes;
    void *map = marks_slots(&bytes);
    if (slots.instead && map && !slots.being_released) {
        memcpy(map, slots.instead, bytes);
    }
}

enum { CONTEXT_IS_DESTROYED = 709 };

/* The driver frees its memory with the context, so there are no slots any more. */
static void
forget_slots(void)
{
    if (slots.instead) {
        slots.state = -1;
        slots.error = CONTEXT_IS_DESTROYED;
        slots.instead = NULL;
    }
}

int
driver_write(uint64_t stream, uint32_t slot, uint32_t value)
{
    if (slots.state <= 0 && pin_slots()) {
        return slots.error;
    }
    return cuda.StreamWriteValue32((void *)(uintptr_t)stream, slots.device + 4 * (uint64_t)slot, value, 0);
}

int
driver_wait(uint64_t stream)
{
    return cuda.StreamSynchronize((void *)(uintptr_t)stream);
}

int
driver_query(void *context, uint64_t stream)
{
    int mode = 2, exchanged = cuda.ExchangeCaptureMode(&mode), pushed = cuda.CtxPushCurrent(context);
    int result = pushed ? pushed : cuda.StreamQuery((void *)(uintptr_t)stream);
    if (!pushed) {
        cuda.CtxPopCurrent(&context);
    }
    if (!exchanged) {
        cuda.ExchangeCaptureMode(&mode);
    }
    return result;
}

uint32_t
driver_written(uint32_t slot)
{
    const volatile uint32_t *at = slots.instead ? slots.instead : slots.host;
    return slots.state > 0 ? at[slot] : 0;
}

static int capture_tried; /* since driver_open() */

void
driver_try_capture(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!capture_tried) {
        capture_tried = 1;
        int mode = 2, works = 0, exchanged = cuda.ExchangeCaptureMode(&mode);
        void *stream = NULL, *graph = NULL;
        if (!pin_slots() && !cuda.StreamCreate(&stream, 1)) {
            if (!cuda.StreamBeginCapture(stream, 2)) {
                works = !driver_write((uint64_t)(uintptr_t)stream, 0, 0);
                works &= !cuda.StreamEndCapture(stream, &graph);
            }
            if (graph) {
                cuda.GraphDestroy(graph);
            }
            cuda.StreamDestroy(stream);
        }
        if (!exchanged) {
            cuda.ExchangeCaptureMode(&mode);
        }
        marks_note(CAPTURES, works ? 1 : REFUSED_CAPTURES);
    }
    pthread_mutex_unlock(&lock);
}

int
driver_capture_status(uint64_t stream, uint64_t *id)
{
    int status = NO_CAPTURE;
    if (stream == 0 || stream == LEGACY_STREAM ||
        cuda.CaptureInfo((void *)(uintptr_t)stream, &status, id, NULL, NULL, NULL)) {
        return NO_CAPTURE;
    }
    return status;
}

uint64_t
driver_capture(uint64_t stream)
{
    uint64_t id = 0;
    return driver_capture_status(stream, &id) == CAPTURE_ACTIVE ? id : 0;
}

uint64_t
driver_context(void)
{
    void *context = NULL;
    return cuda.CtxGetCurrent(&context) ? 0 : (uint64_t)(uintptr_t)context;
}

static _Atomic unsigned unloads;

/* The driver is asked once for each function in a thread, in relaxed mode, since a capture may be under way. */
const char *
driver_kernel(uint64_t function)
{
    enum { RECENT = 512 };
    static __thread struct {
        uint64_t function;
        const char *name;
        unsigned unloads;
    } recent[RECENT];
    unsigned current = unloads, at = frames_hash((const void *)(uintptr_t)function) % RECENT;
    if (recent[at].function != function || recent[at].unloads != current) {
        const char *name = NULL;
        int mode = 2, exchanged = cuda.ExchangeCaptureMode(&mode);
        if ((!cuda.FuncGetName || cuda.FuncGetName(&name, function)) &&
            (!cuda.KernelGetName || cuda.KernelGetName(&name, function))) {
            name = NULL;
        }
        if (!exchanged) {
            cuda.ExchangeCaptureMode(&mode);
        }
        recent[at].function = function;
        recent[at].name = name;
        recent[at].unloads = current;
    }
    return recent[at].name;
}

void
driver_unloaded(void)
{
    unloads++;
}

void
driver_context_goes(uint64_t context)
{
    if (!context || context == (uint64_t)(uintptr_t)slots.context) {
        forget_slots();
    }
}

void
driver_releases(void)
{
    slots.being_released++;
}

void
driver_released(int device)
{
    int is_there = 0;
    unsigned flags;
    if (cuda.PrimaryState(device, &flags, &is_there) || !is_there) {
        forget_slots();
    }
    slots.being_released -= slots.being_released > 0;
}

void
driver_close(void)
{
    int keep = slots.registered && cuda.MemHostUnregister(slots.host); /* refused if the context is dead */
    if (!marks_close(keep) && slots.instead) {
        cuda.MemFreeHost(slots.instead);
    }
    slots.instead = NULL;
    slots.registered = slots.state = 0;
}

void
driver_open(void)
{
    slots.state = slots.being_released = capture_tried = 0;
}

void
driver_forked(void)
{
    pthread_mutex_init(&slots.lock, NULL);
    slots.being_released = 0;
}
