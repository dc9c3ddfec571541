/* Refuses what is not as a program has it, with the sentences of validate.py. */

#include "engine.h"

int
refuse(Fault *fault, const char *sentence, long long row, long long value, long long count)
{
    *fault = (Fault){sentence, row, value, count};
    return -1;
}

static inline int
code_of(const Program *p, const State *s, Py_ssize_t instruction)
{
    return instruction < s->length ? s->code[instruction] : p->code[instruction - s->length];
}

static inline int32_t
thread_of(const Program *p, const State *s, Py_ssize_t instruction)
{
    return instruction < s->length ? s->thread[instruction] : p->thread[instruction - s->length];
}

static int
check_instruction(const Program *p, const State *s, Py_ssize_t i, Fault *fault)
{
    const long long number = s->length + i;
    const int code = p->code[i];
    const int32_t thread = p->thread[i], stream = p->stream[i], target = p->target[i];
    const int64_t first = i ? p->ends[i - 1] : 0;
    if (code < 0 || code >= CODES) {
        return refuse(fault, "instruction %lld: there is no code %lld", number, code, 0);
    }
    if (thread < 0 || thread >= p->threads) {
        return refuse(fault, "instruction %lld: thread %lld is none of the program's %lld", number, thread, p->threads);
    }
    if ((code == LAUNCH || code == RECORD || code == STREAM_WAIT || code == SYNC_STREAM) &&
        (stream < 0 || stream >= p->streams)) {
        return refuse(fault, "instruction %lld: stream %lld is none of the program's %lld", number, stream, p->streams);
    }
    if (code == SYNC_DEVICE && stream < -1) {
        return refuse(fault, "instruction %lld: %lld is neither a device nor -1, which is every device", number, stream, 0);
    }
    if ((code == STREAM_WAIT || code == SYNC_EVENT) && (target < 0 || target >= number || code_of(p, s, target) != RECORD)) {
        return refuse(fault, "instruction %lld: its target %lld is not an earlier RECORD", number, target, 0);
    }
    if (code == JOIN && (target < 0 || target >= number || thread_of(p, s, target) == thread)) {
        return refuse(fault, "instruction %lld: its target %lld is not an earlier instruction of another thread", number,
                      target, 0);
    }
    if (p->work[i] < 0) {
        return refuse(fault, "instruction %lld: its work is negative, %lld ns", number, p->work[i], 0);
    }
    if (p->call[i] < 0) {
        return refuse(fault, "instruction %lld: its call is negative, %lld ns", number, p->call[i], 0);
    }
    if (p->ends[i] < first) {
        return refuse(fault, "instruction %lld: its ops end at %lld, before they begin at %lld", number, p->ends[i], first);
    }
    if (p->ends[i] > p->ops) {
        return refuse(fault, "instruction %lld: its ops end at %lld, and there are %lld", number, p->ends[i], p->ops);
    }
    if (p->ends[i] > first && code != LAUNCH) {
        return refuse(fault, "instruction %lld: it has ops and is not a LAUNCH", number, 0, 0);
    }
    return 0;
}

static int
check_op(const Program *p, const State *s, Py_ssize_t op, Fault *fault)
{
    const long long number = s->ops + op;
    const int32_t stream = p->op_stream[op], engine = p->op_engine[op], after = p->op_after[op];
    if (stream < 0 || stream >= p->streams) {
        return refuse(fault, "op %lld: stream %lld is none of the program's %lld", number, stream, p->streams);
    }
    if (engine < -1 || engine >= p->engines) {
        return refuse(fault, "op %lld: engine %lld is none of the program's %lld", number, engine, p->engines);
    }
    if (p->op_share[op] < 0 || p->op_share[op] > WHOLE) {
        return refuse(fault, "op %lld: it takes %lld thousandths of an engine", number, p->op_share[op], 0);
    }
    if (p->op_blocks[op] < 0) {
        return refuse(fault, "op %lld: it has %lld blocks", number, p->op_blocks[op], 0);
    }
    if (p->op_size[op] < 1 || p->op_size[op] > WHOLE) {
        return refuse(fault, "op %lld: its blocks fill %lld thousandths of a multiprocessor", number, p->op_size[op], 0);
    }
    if (p->op_cached[op] < 0) {
        return refuse(fault, "op %lld: it uses %lld thousandths of the cache", number, p->op_cached[op], 0);
    }
    if (p->op_uncached[op] < 0) {
        return refuse(fault, "op %lld: without the cache it takes %lld ns more", number, p->op_uncached[op], 0);
    }
    if (p->op_again[op] < 0) {
        return refuse(fault, "op %lld: repeated, it takes %lld ns", number, p->op_again[op], 0);
    }
    if (after < -1 || after >= number) {
        return refuse(fault, "op %lld: it follows op %lld, which is not an earlier one", number, after, 0);
    }
    if (p->op_duration[op] < 0) {
        return refuse(fault, "op %lld: its duration is negative, %lld ns", number, p->op_duration[op], 0);
    }
    if (p->op_gap[op] < 0) {
        return refuse(fault, "op %lld: its gap is negative, %lld ns", number, p->op_gap[op], 0);
    }
    return 0;
}

int
adds_up(const int64_t *times, Py_ssize_t count, uint64_t *total)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        *total += times[i] < 0 ? 0 - (uint64_t)times[i] : (uint64_t)times[i];
        if (*total > MOST_NS) {
            return 0;
        }
    }
    return 1;
}

static int
check_counts(const Program *p, const State *s, Fault *fault)
{
    if (p->threads < s->threads) {
        return refuse(fault, "there were %lld threads before, and now %lld", s->threads, p->threads, 0);
    }
    if (p->engines < s->engines) {
        return refuse(fault, "there were %lld engines before, and now %lld", s->engines, p->engines, 0);
    }
    if (p->streams < s->streams_known) {
        return refuse(fault, "there were %lld streams before, and now %lld", s->streams_known, p->streams, 0);
    }
    for (Py_ssize_t i = 0; i < s->streams_known; i++) {
        if (p->device_of_stream[i] != s->streams[i].index) {
            return refuse(fault, "stream %lld is of device %lld, and was of %lld", i, p->device_of_stream[i],
                          s->streams[i].index);
        }
    }
    return 0;
}

int
check(const Program *p, const State *s, uint64_t *total, Fault *fault)
{
    if (check_counts(p, s, fault) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < p->length; i++) {
        if (check_instruction(p, s, i, fault) < 0) {
            return -1;
        }
    }
    const int64_t last = p->length ? p->ends[p->length - 1] : 0;
    if (last != p->ops) {
        return refuse(fault, "the instructions' ops end at %lld, and there are %lld", last, p->ops, 0);
    }
    for (Py_ssize_t op = 0; op < p->ops; op++) {
        if (check_op(p, s, op, fault) < 0) {
            return -1;
        }
    }
    *total = s->total;
    if (!adds_up(p->work, p->length, total) || !adds_up(p->call, p->length, total) ||
        !adds_up(p->latency, p->length, total) || !adds_up(p->op_duration, p->ops, total) ||
        !adds_up(p->op_latency, p->ops, total) || !adds_up(p->op_gap, p->ops, total) ||
        !adds_up(p->op_lag, p->ops, total) || !adds_up(p->op_uncached, p->ops, total) ||
        !adds_up(p->op_again, p->ops, total)) {
        return refuse(fault, "the program's times add up to more than 2**62 ns", 0, 0, 0);
    }
    return 0;
}
