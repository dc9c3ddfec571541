/* The tables of _calls.h: cupti_driver_cbid.h has the ids. */

#include "_calls.h"

#include "_marks.h"

#include <string.h>

Call calls[MOST_CALLS];

/* Where a call's stream and event stand in its parameters, in bytes (generated_cuda_meta.h). */
enum { NO_STREAM = 255, IN_CONFIG = 254, NONE = 255 };

static const struct {
    uint16_t id, per_thread_id; /* the call's, and that of its _ptsz or _ptds; 0: none */
    uint8_t kind, stream, event;
} work_calls[] = {
    {307, 442, KERNEL, 40, NONE},        /* cuLaunchKernel */
    {652, 653, KERNEL, IN_CONFIG, NONE}, /* cuLaunchKernelEx */
    {477, 478, KERNEL, 40, NONE},        /* cuLaunchCooperativeKernel */
    {514, 515, GRAPH, 8, NONE},          /* cuGraphLaunch */
    {277, 421, COPY, 24, NONE}, {279, 422, COPY, 24, NONE}, {281, 423, COPY, 24, NONE}, /* HtoD, DtoH, DtoD, async */
    {306, 418, COPY, 24, NONE},                              /* cuMemcpyAsync */
    {289, 424, COPY, 8, NONE},  {291, 425, COPY, 8, NONE},   /* 2D, 3D */
    {319, 426, COPY, 40, NONE}, {321, 427, COPY, 8, NONE},   /* Peer, 3DPeer */
    {776, 777, COPY, 64, NONE}, {796, 797, COPY, 56, NONE}, {837, 838, COPY, 32, NONE}, /* Batch, WithAttributes */
    {276, 397, COPY, NO_STREAM, NONE}, {278, 398, COPY, NO_STREAM, NONE}, {280, 399, COPY, NO_STREAM, NONE},
    {305, 408, COPY, NO_STREAM, NONE}, {287, 405, COPY, NO_STREAM, NONE}, {288, 406, COPY, NO_STREAM, NONE},
    {290, 407, COPY, NO_STREAM, NONE},
    {216, 428, MEMSET, 24, NONE}, {218, 429, MEMSET, 24, NONE}, {220, 430, MEMSET, 24, NONE},
    {222, 431, MEMSET, 40, NONE}, {224, 432, MEMSET, 40, NONE}, {226, 433, MEMSET, 40, NONE},
    {249, 411, MEMSET, NO_STREAM, NONE}, {250, 412, MEMSET, NO_STREAM, NONE}, {251, 413, MEMSET, NO_STREAM, NONE},
    {119, 441, RECORD, 8, 0},     {587, 588, RECORD, 8, 0},  /* cuEventRecord, WithFlags */
    {295, 436, WAIT, 0, 8},                                  /* cuStreamWaitEvent */
    {458, 459, WAIT_VALUE, 0, 8}, {659, 660, WAIT_VALUE, 0, 8},   /* cuStreamWaitValue32, and _v2 */
    {473, 474, WAIT_VALUE, 0, 8}, {661, 662, WAIT_VALUE, 0, 8},   /* 64 */
    {460, 461, WRITE_VALUE, 0, 8}, {663, 664, WRITE_VALUE, 0, 8}, /* cuStreamWriteValue32, and _v2 */
    {475, 476, WRITE_VALUE, 0, 8}, {665, 666, WRITE_VALUE, 0, 8}, /* 64 */
    {462, 463, BATCH, 0, NONE},    {667, 668, BATCH, 0, NONE},    /* cuStreamBatchMemOp, and _v2 */
};

/* Calls of memory, whose errors are seen besides those of work. */
static const uint16_t other_calls[] = {243, 244, 245, 33, 38, 39, 294, 371, 549, 550, 551, 552};

static const struct {
    uint16_t id;
    uint8_t what, per_thread;
} done_calls[] = {
    {125, STREAM_DONE, 0}, {439, STREAM_DONE, 1}, {126, STREAM_DONE, 0}, {440, STREAM_DONE, 1},
    {17, CONTEXT_DONE, 0}, {800, CONTEXT_DONE, 0}, {120, EVENT_DONE, 0}, {121, EVENT_DONE, 0},
};

static const struct {
    uint16_t id;
    uint8_t what, per_thread;
} capture_calls[] = {
    {495, BEGIN_CAPTURE, 0}, {496, BEGIN_CAPTURE, 1}, {539, BEGIN_CAPTURE, 0}, {540, BEGIN_CAPTURE, 1},
    {720, BEGIN_CAPTURE, 0}, {721, BEGIN_CAPTURE, 1}, {497, END_CAPTURE, 0},   {498, END_CAPTURE, 1},
};

static const struct {
    uint16_t id;
    uint8_t what;
} gone_calls[] = {
    {127, STREAM_GONE},  {326, STREAM_GONE},  {11, CONTEXT_GONE},  {322, CONTEXT_GONE},
    {389, PRIMARY_GONE}, {545, PRIMARY_GONE}, {387, PRIMARY_RELEASED}, {544, PRIMARY_RELEASED},
};

static const uint16_t unload_calls[] = {22, 680}; /* cuModuleUnload, cuLibraryUnload */

uint64_t
pointer_in(const void *parameters, size_t offset)
{
    uint64_t pointer;
    memcpy(&pointer, (const char *)parameters + offset, sizeof pointer);
    return pointer;
}

uint32_t
calls_kind(uint32_t id)
{
    return work_calls[calls[id].work - 1].kind;
}

uint64_t
calls_stream(uint32_t id, const CallbackData *data)
{
    int row = calls[id].work - 1;
    uint8_t at = work_calls[row].stream;
    uint64_t stream = at == NO_STREAM ? 0
                      : at == IN_CONFIG ? pointer_in((const void *)(uintptr_t)pointer_in(data->parameters, 0), 32)
                                        : pointer_in(data->parameters, at);
    return stream ? stream : calls[id].per_thread ? PER_THREAD_STREAM : 0;
}

uint64_t
calls_event(uint32_t id, const CallbackData *data)
{
    uint8_t at = work_calls[calls[id].work - 1].event;
    return at == NONE ? 0 : pointer_in(data->parameters, at);
}

void
calls_enable(const Callbacks *cupti, void *subscriber)
{
    memset(calls, 0, sizeof calls);
    /* Enabling fails for calls that this driver does not have. */
    for (size_t i = 0; i < sizeof work_calls / sizeof *work_calls; i++) {
        calls[work_calls[i].id].work = calls[work_calls[i].per_thread_id].work = (uint8_t)(i + 1);
        calls[work_calls[i].per_thread_id].per_thread = 1;
        cupti->EnableCallback(1, subscriber, DRIVER_API, work_calls[i].id);
        cupti->EnableCallback(1, subscriber, DRIVER_API, work_calls[i].per_thread_id);
    }
    for (size_t i = 0; i < sizeof capture_calls / sizeof *capture_calls; i++) {
        calls[capture_calls[i].id].capture = capture_calls[i].what;
        calls[capture_calls[i].id].per_thread = capture_calls[i].per_thread;
        cupti->EnableCallback(1, subscriber, DRIVER_API, capture_calls[i].id);
    }
    for (size_t i = 0; i < sizeof done_calls / sizeof *done_calls; i++) {
        calls[done_calls[i].id].done = done_calls[i].what;
        calls[done_calls[i].id].per_thread = done_calls[i].per_thread;
        cupti->EnableCallback(1, subscriber, DRIVER_API, done_calls[i].id);
    }
    for (size_t i = 0; i < sizeof unload_calls / sizeof *unload_calls; i++) {
        calls[unload_calls[i]].unload = 1;
        cupti->EnableCallback(1, subscriber, DRIVER_API, unload_calls[i]);
    }
    for (size_t i = 0; i < sizeof gone_calls / sizeof *gone_calls; i++) {
        calls[gone_calls[i].id].gone = gone_calls[i].what;
        cupti->EnableCallback(1, subscriber, DRIVER_API, gone_calls[i].id);
    }
    for (size_t i = 0; i < sizeof other_calls / sizeof *other_calls; i++) {
        cupti->EnableCallback(1, subscriber, DRIVER_API, other_calls[i]);
    }
}
