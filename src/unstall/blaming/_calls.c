/* The table of _calls.h: cuda.h has the arguments, cudaTypedefs.h the versions. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_calls.h"

#include "_marks.h"

#include <string.h>

enum { NONE = -1, IN_CONFIG = -2, STREAM_IN_CONFIG_AT = 32 };

#define LAUNCH(name, since, stream, function) {{name, since}, KERNEL, stream, NONE, function, 0, 0, 0, 0}
#define WORK(name, since, kind, stream) {{name, since}, kind, stream, NONE, NONE, 0, 0, 0, 0}
#define EVENT(name, since, kind, stream, event) {{name, since}, kind, stream, event, NONE, 0, 0, 0, 0}
#define DONE(name, since, what) {{name, since}, 0, NONE, NONE, NONE, what, 0, 0, 0}
#define CAPTURE(name, since, what) {{name, since}, 0, NONE, NONE, NONE, 0, what, 0, 0}
#define GONE(name, since, what) {{name, since}, 0, NONE, NONE, NONE, 0, 0, what, 0}
#define UNLOAD(name, since) {{name, since}, 0, NONE, NONE, NONE, 0, 0, 0, 1}
#define MEMORY(name, since) {{name, since}, 0, NONE, NONE, NONE, 0, 0, 0, 0} /* whose errors are seen */

static const Call table[] = {
    LAUNCH("cuLaunchKernel", 4000, 8, 0),
    LAUNCH("cuLaunchKernelEx", 11060, IN_CONFIG, 1),
    LAUNCH("cuLaunchCooperativeKernel", 9000, 8, 0),
    WORK("cuGraphLaunch", 10000, GRAPH, 1),
    WORK("cuMemcpyHtoDAsync_v2", 3020, COPY, 3),
    WORK("cuMemcpyDtoHAsync_v2", 3020, COPY, 3),
    WORK("cuMemcpyDtoDAsync_v2", 3020, COPY, 3),
    WORK("cuMemcpyAsync", 4000, COPY, 3),
    WORK("cuMemcpy2DAsync_v2", 3020, COPY, 1),
    WORK("cuMemcpy3DAsync_v2", 3020, COPY, 1),
    WORK("cuMemcpyPeerAsync", 4000, COPY, 5),
    WORK("cuMemcpy3DPeerAsync", 4000, COPY, 1),
    WORK("cuMemcpyBatchAsync", 12080, COPY, 8),
    WORK("cuMemcpyBatchAsync_v2", 13000, COPY, 7),
    WORK("cuMemcpyWithAttributesAsync", 13050, COPY, 4),
    WORK("cuMemcpyHtoD_v2", 3020, COPY, NONE),
    WORK("cuMemcpyDtoH_v2", 3020, COPY, NONE),
    WORK("cuMemcpyDtoD_v2", 3020, COPY, NONE),
    WORK("cuMemcpy", 4000, COPY, NONE),
    WORK("cuMemcpy2D_v2", 3020, COPY, NONE),
    WORK("cuMemcpy2DUnaligned_v2", 3020, COPY, NONE),
    WORK("cuMemcpy3D_v2", 3020, COPY, NONE),
    WORK("cuMemsetD8Async", 3020, MEMSET, 3),
    WORK("cuMemsetD16Async", 3020, MEMSET, 3),
    WORK("cuMemsetD32Async", 3020, MEMSET, 3),
    WORK("cuMemsetD2D8Async", 3020, MEMSET, 5),
    WORK("cuMemsetD2D16Async", 3020, MEMSET, 5),
    WORK("cuMemsetD2D32Async", 3020, MEMSET, 5),
    WORK("cuMemsetD8_v2", 3020, MEMSET, NONE),
    WORK("cuMemsetD16_v2", 3020, MEMSET, NONE),
    WORK("cuMemsetD32_v2", 3020, MEMSET, NONE),
    EVENT("cuEventRecord", 2000, RECORD, 1, 0),
    EVENT("cuEventRecordWithFlags", 11010, RECORD, 1, 0),
    EVENT("cuStreamWaitEvent", 3020, WAIT, 0, 1),
    EVENT("cuStreamWaitValue32", 8000, WAIT_VALUE, 0, 1),
    EVENT("cuStreamWaitValue32_v2", 11070, WAIT_VALUE, 0, 1),
    EVENT("cuStreamWaitValue64", 9000, WAIT_VALUE, 0, 1),
    EVENT("cuStreamWaitValue64_v2", 11070, WAIT_VALUE, 0, 1),
    EVENT("cuStreamWriteValue32", 8000, WRITE_VALUE, 0, 1),
    EVENT("cuStreamWriteValue32_v2", 11070, WRITE_VALUE, 0, 1),
    EVENT("cuStreamWriteValue64", 9000, WRITE_VALUE, 0, 1),
    EVENT("cuStreamWriteValue64_v2", 11070, WRITE_VALUE, 0, 1),
    WORK("cuStreamBatchMemOp", 8000, BATCH, 0),
    WORK("cuStreamBatchMemOp_v2", 11070, BATCH, 0),
    DONE("cuStreamQuery", 2000, STREAM_DONE),
    DONE("cuStreamSynchronize", 2000, STREAM_DONE),
    DONE("cuCtxSynchronize", 2000, CONTEXT_DONE),
    DONE("cuCtxSynchronize_v2", 13000, CONTEXT_DONE),
    DONE("cuEventQuery", 2000, EVENT_DONE),
    DONE("cuEventSynchronize", 2000, EVENT_DONE),
    CAPTURE("cuStreamBeginCapture", 10000, BEGIN_CAPTURE),
    CAPTURE("cuStreamBeginCapture_v2", 10010, BEGIN_CAPTURE),
    CAPTURE("cuStreamBeginCaptureToGraph", 12030, BEGIN_CAPTURE),
    CAPTURE("cuStreamEndCapture", 10000, END_CAPTURE),
    GONE("cuStreamDestroy", 2000, STREAM_GONE),
    GONE("cuStreamDestroy_v2", 4000, STREAM_GONE),
    GONE("cuCtxDestroy", 2000, CONTEXT_GONE),
    GONE("cuCtxDestroy_v2", 4000, CONTEXT_GONE),
    GONE("cuDevicePrimaryCtxReset", 7000, PRIMARY_GONE),
    GONE("cuDevicePrimaryCtxReset_v2", 11000, PRIMARY_GONE),
    GONE("cuDevicePrimaryCtxRelease", 7000, PRIMARY_RELEASED),
    GONE("cuDevicePrimaryCtxRelease_v2", 11000, PRIMARY_RELEASED),
    UNLOAD("cuModuleUnload", 2000),
    UNLOAD("cuLibraryUnload", 12000),
    MEMORY("cuMemAlloc_v2", 3020),
    MEMORY("cuMemAllocPitch_v2", 3020),
    MEMORY("cuMemAllocManaged", 6000),
    MEMORY("cuMemAllocHost_v2", 3020),
    MEMORY("cuMemHostAlloc", 2020),
    MEMORY("cuMemFree", 2000),
    MEMORY("cuMemFree_v2", 3020),
    MEMORY("cuMemFreeHost", 2000),
    MEMORY("cuMemCreate", 10020),
    MEMORY("cuMemRelease", 10020),
    MEMORY("cuMemMap", 10020),
    MEMORY("cuMemUnmap", 10020),
};

static Made made[MOST_FUNCTIONS]; /* by number */

const Made *
calls_made(int number)
{
    return &made[number];
}

uint64_t
pointer_in(const void *at, size_t offset)
{
    uint64_t pointer;
    memcpy(&pointer, (const char *)at + offset, sizeof pointer);
    return pointer;
}

uint64_t
calls_stream(const Made *on)
{
    int at = on->call->stream;
    uint64_t stream = at == NONE ? 0
                      : at == IN_CONFIG ? pointer_in((const void *)on->arguments[0], STREAM_IN_CONFIG_AT)
                                        : (uint64_t)on->arguments[at];
    return stream ? stream : on->per_thread ? PER_THREAD_STREAM : 0;
}

uint64_t
calls_event(const Made *on)
{
    int at = on->call->event;
    return at == NONE ? 0 : (uint64_t)on->arguments[at];
}

static void
note(int number, int per_thread, const void *call)
{
    if (!made[number].call) {
        made[number] = (Made){.call = call, .per_thread = per_thread};
    }
}

void
calls_add(const Pointers *pointers, void *driver)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        pointers->add(BLAMING, driver, &table[i].function, note, &table[i]);
    }
}
