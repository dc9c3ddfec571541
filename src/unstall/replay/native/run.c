/* Runs the instructions of a program, and the ops of its launches. */

#include "engine.h"

/* A stream's end never decreases, so that maxima over streams can be updated instead of recomputed. */
void
keep_done(State *s, const Stream *stream)
{
    const int64_t done = later(stream->ready, stream->held);
    s->devices[stream->device].done = later(s->devices[stream->device].done, done);
    s->done = later(s->done, done);
}

Device *
find_device(const State *s, Py_ssize_t streams, int32_t index)
{
    Py_ssize_t low = 0, high = streams;
    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if (s->devices[middle].index < index) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    return low < streams && s->devices[low].index == index ? &s->devices[low] : NULL;
}

/* Returns when an engine begins an op that could begin at `time`, and sets when it is done. */
static int64_t
serve(State *s, int32_t engine, Needs needs, int64_t time, int64_t duration, int64_t *done)
{
    if (!s->load) {
        time = later(time, s->free[engine]);
        return s->free[engine] = *done = plus(time, duration), time;
    }
    Load *load = &s->load[engine];
    load->count += !load->count;
    if (needs.share) {
        return run_beside(load, time, duration, needs, done);
    }
    time = when_idle(load, time, duration);
    *done = plus(time, duration);
    occupy(load, time, *done, (Use){2 * WHOLE, WHOLE, WHOLE});
    return time;
}

static int64_t
arrival(const Program *p, const State *s, const Launch *launch, Py_ssize_t op)
{
    const Stream *on = &s->streams[p->op_stream[op]];
    int64_t time = later(launch->begin, plus(launch->done, p->op_latency[op]));
    time = later(time, plus(later(launch->follows, on->ready), p->op_gap[op]));
    time = later(time, later(on->held, launch->stream->held));
    const int32_t after = p->op_after[op];
    return after < 0 ? time : later(time, plus(s->op_ends[after], p->op_lag[op]));
}

/* Returns one of the last ops of a stream: the last one is number 1. */
static const Served *
recent(const Stream *on, int number)
{
    return &on->recent[(on->next_recent + RECENT - number) % RECENT];
}

/* Returns how much of the cache an op uses for other data than `data`. */
static int64_t
used_by(const Served *op, int32_t data)
{
    return data && op->data == data ? 0 : op->cached;
}

/* Returns how much of the cache an op uses for other data than `data` from `since` until `time`. */
static int64_t
used_meanwhile(const Served *op, int32_t data, int64_t since, int64_t time)
{
    const int64_t from = later(since, op->begun), until = time < op->ended ? time : op->ended;
    return until > from ? (int64_t)((__int128)used_by(op, data) * (until - from) / (op->ended - op->begun)) : 0;
}

/* Returns how much of some data is gone from the cache, once as much of it was used. */
static int64_t
lost(int64_t used)
{
    const int64_t more = used > KEPT ? used - KEPT : 0;
    return WHOLE * (more < LOST - KEPT ? more : LOST - KEPT) / (LOST - KEPT);
}

/* Returns how much of the data of an op that was in the cache is gone, since others used it after the last op of a
   stream, in thousandths. */
static int64_t
missing(const State *s, const Stream *on, int32_t cached, int32_t data, int64_t time)
{
    if (!recent(on, 1)->cached) {
        return 0;
    }
    const int64_t since = recent(on, 1)->begun;
    const int64_t alone = lost(cached);
    int64_t used = cached;
    for (Py_ssize_t i = 0; i < s->streams_known; i++) {
        const Stream *other = &s->streams[i];
        if (other != on && other->index == on->index) {
            const Served *last = recent(other, 1), *before = recent(other, 2);
            const int64_t both = used_meanwhile(last, data, since, time) + used_meanwhile(before, data, since, time);
            const int64_t most = later(used_by(last, data), used_by(before, data));
            used += both < most ? both : most;
        }
    }
    return alone < WHOLE ? WHOLE * (lost(used) - alone) / (WHOLE - alone) : 0;
}

/* Returns how long an op takes alone, after the last ops of its stream. */
static int64_t
duration_of(const Program *p, const Stream *on, Py_ssize_t op)
{
    const int64_t duration = p->op_duration[op], again = p->op_again[op];
    const int32_t data = p->op_data[op], cached = p->op_cached[op];
    const int64_t alone = lost(cached);
    int64_t used = cached;
    int32_t later_data = 0; /* of the op after the one at hand */
    for (int number = 1; again && data && number <= RECENT && (alone == WHOLE || lost(used) < WHOLE); number++) {
        const Served *same = recent(on, number);
        if (same->data == data && same->duration == duration) {
            const __int128 more = (__int128)(duration - again) * (lost(used) - alone);
            return again + (alone < WHOLE ? (int64_t)(more / (WHOLE - alone)) : 0);
        }
        used += same->data && same->data == later_data ? 0 : used_by(same, data);
        later_data = same->data;
    }
    return duration;
}

/* Returns when the op ends. */
static int64_t
run_op(const Program *p, State *s, Py_ssize_t op, int64_t time)
{
    Stream *on = &s->streams[p->op_stream[op]];
    const int32_t engine = p->op_engine[op];
    int64_t duration = p->op_duration[op], ended = plus(time, duration);
    if (engine >= 0) {
        const Needs needs = {p->op_share[op], p->op_blocks[op], p->op_size[op]};
        duration = s->load ? duration_of(p, on, op) : duration;
        if (s->load && needs.share && p->op_uncached[op]) {
            const int64_t begins = when_room(&s->load[engine], time, needs);
            const int64_t gone = missing(s, on, p->op_cached[op], p->op_data[op], begins);
            duration = plus(duration, (int64_t)((__int128)p->op_uncached[op] * gone / WHOLE));
        }
        time = serve(s, engine, needs, time, duration, &ended);
        if (s->load && ended > time && p->op_share[op]) {
            on->recent[on->next_recent] =
                (Served){time, ended, p->op_duration[op], p->op_cached[op], p->op_data[op]};
            on->next_recent = (on->next_recent + 1) % RECENT;
        }
    }
    s->op_start[op] = time;
    s->op_end[op] = s->op_ends[s->ops + op] = on->ready = ended;
    keep_done(s, on);
    return ended;
}

/* Runs the ops of a launch, of which several streams have some, by arrival. */
static int64_t
run_branches(const Program *p, State *s, const Launch *launch, Py_ssize_t first, Py_ssize_t last)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t op = last; op-- > first;) {
        Stream *on = &s->streams[p->op_stream[op]];
        s->next_op[op] = on->next_op;
        on->next_op = op + 1;
        s->op_ends[s->ops + op] = -1;
    }
    for (Py_ssize_t op = first; op < last; op++) {
        Stream *on = &s->streams[p->op_stream[op]];
        if (on->next_op == op + 1) {
            s->heads[count++] = op;
            on->next_op = 0;
        }
    }
    int64_t finished = 0;
    while (count) {
        Py_ssize_t chosen = -1;
        int64_t earliest = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            const Py_ssize_t op = s->heads[i], after = p->op_after[op] - s->ops;
            if (after >= first && after < last && s->op_ends[s->ops + after] < 0) {
                continue;
            }
            const int64_t time = arrival(p, s, launch, op);
            if (chosen < 0 || time < earliest || (time == earliest && op < s->heads[chosen])) {
                chosen = i;
                earliest = time;
            }
        }
        const Py_ssize_t op = s->heads[chosen], next = s->next_op[op];
        finished = later(finished, run_op(p, s, op, earliest));
        s->heads[chosen] = next ? next - 1 : s->heads[--count];
    }
    return finished;
}

static Launch
open_launch(Stream *stream, int64_t begin, int64_t done)
{
    if (stream->full) {
        done = later(done, stream->outstanding[stream->next]);
    }
    return (Launch){stream, begin, done, stream->ready, 0};
}

/* Runs the ops of the launch at hand from the next op on. Stops at an op of a joint operation and returns that member;
   otherwise returns -1. */
static Py_ssize_t
run_ops(const Program *p, State *s, Py_ssize_t last)
{
    Launch *launch = &s->launch;
    int branches = 0;
    for (Py_ssize_t other = s->op + 1; s->load && other < last && !branches; other++) {
        branches = p->op_stream[other] != p->op_stream[s->op];
    }
    if (branches) {
        launch->finished = run_branches(p, s, launch, s->op, last);
        s->op = last;
    }
    for (; s->op < last; s->op++) {
        const int64_t time = arrival(p, s, launch, s->op);
        if (p->joint && p->joint[s->op] >= 0) {
            s->op_start[s->op] = time;
            return p->joint[s->op];
        }
        launch->finished = later(launch->finished, run_op(p, s, s->op, time));
    }
    return -1;
}

/* Ends the op of a joint operation at which a replay stopped. */
void
end_joint(const Program *p, State *s, int64_t ended)
{
    Stream *on = &s->streams[p->op_stream[s->op]];
    s->op_end[s->op] = s->op_ends[s->ops + s->op] = on->ready = ended;
    keep_done(s, on);
    s->launch.finished = later(s->launch.finished, ended);
    s->op++;
}

static void
close_launch(State *s)
{
    Stream *stream = s->launch.stream;
    stream->ready = later(stream->ready, s->launch.finished);
    keep_done(s, stream);
    stream->outstanding[stream->next++] = stream->ready;
    if (stream->next == s->capacity) {
        stream->next = 0;
        stream->full = 1;
    }
}

/* Runs a part from the next instruction on. Stops at an op of a joint operation and returns that member; returns -1 at
   the end of the part. */
Py_ssize_t
run(const Program *p, State *s)
{
    for (Py_ssize_t i = s->row; i < p->length; i++) {
        const int code = p->code[i];
        const int32_t number = p->stream[i], target = p->target[i];
        const int64_t latency = p->latency[i];
        Stream *const stream = &s->streams[code == CALL || code >= SYNC_DEVICE ? 0 : number];
        const int64_t begin = plus(s->clock[p->thread[i]], p->work[i]);
        int64_t done = plus(begin, p->call[i]), marked = 0;
        switch (code) {
        case LAUNCH:
            if (!s->launching) {
                s->launch = open_launch(stream, begin, done);
            }
            const Py_ssize_t member = run_ops(p, s, (Py_ssize_t)p->ends[i]);
            s->launching = member >= 0;
            if (member >= 0) {
                s->row = i;
                return member;
            }
            close_launch(s);
            done = s->launch.done;
            break;
        case RECORD:
            marked = later(stream->ready, stream->held);
            if (latency > 0) {
                stream->ready = plus(marked, latency);
                keep_done(s, stream);
            }
            break;
        case STREAM_WAIT:
            stream->held = later(stream->held, plus(s->marked[target], latency));
            keep_done(s, stream);
            break;
        case SYNC_STREAM:
            done = later(done, plus(later(stream->ready, stream->held), latency));
            break;
        case SYNC_DEVICE:
            if (number == -1) {
                done = p->streams ? later(done, plus(s->done, latency)) : done;
            }
            else {
                const Device *device = find_device(s, p->streams, number);
                done = device ? later(done, plus(device->done, latency)) : done;
            }
            break;
        case SYNC_EVENT:
            done = later(done, plus(s->marked[target], latency));
            break;
        case JOIN:
            done = later(done, s->ends[target]);
            break;
        }
        s->start[i] = begin;
        s->end[i] = s->clock[p->thread[i]] = done;
        const Py_ssize_t row = s->length + i;
        s->ends[row] = done;
        s->marked[row] = marked;
        if (!s->is_whole) {
            s->code[row] = (int8_t)code;
            s->thread[row] = p->thread[i];
        }
    }
    return -1;
}
