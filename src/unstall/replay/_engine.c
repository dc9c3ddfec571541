/* The replay engine in C. The reference implementation, interpreter.py, defines its results; validate.py
   defines its errors, with the same messages.

   A replay can be fed a program part by part: `State` is kept between the parts. `target` and `op_after` count from the
   beginning of the first part; the ends of an instruction's ops count from the beginning of its own part.

   Columns are checked for type and length. Columns of indices are copied before they are checked if the loop runs without
   the GIL, since another thread could change the caller's columns. A job is replayed with the GIL, without copies: it
   may have thousands of programs. */

#define Py_LIMITED_API 0x030B0000 /* from 3.11 on it has the buffer protocol */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CALL, LAUNCH, RECORD, STREAM_WAIT, SYNC_STREAM, SYNC_DEVICE, SYNC_EVENT, JOIN, CODES };

/* Every time is a sum of distinct times of the program. If all of them add up to at most this, no sum overflows. */
#define MOST_NS ((uint64_t)1 << 62)
#define MOST_THREADS ((long long)1 << 24)
#define MOST_CAPACITY INT32_MAX

enum {
    CODE, THREAD, STREAM, TARGET, WORK, CALLS, LATENCY, OPS,
    OP_STREAM, OP_ENGINE, OP_SHARE, OP_BLOCKS, OP_SIZE, OP_CACHED, OP_AFTER, OP_DURATION, OP_LATENCY, OP_GAP,
    OP_LAG, OP_TAIL, OP_UNCACHED,
    DEVICE_OF_STREAM, COLUMNS
};

static const struct {
    const char *name;
    int bytes;
    int indices;
    int like; /* the column that has the same length */
} columns[COLUMNS] = {
    {"instructions.code", 1, 1, CODE},          {"instructions.thread", 4, 1, CODE},
    {"instructions.stream", 4, 1, CODE},        {"instructions.target", 4, 1, CODE},
    {"instructions.work", 8, 0, CODE},          {"instructions.call", 8, 0, CODE},
    {"instructions.latency", 8, 0, CODE},       {"instructions.ops", 8, 1, CODE},
    {"ops.stream", 4, 1, OP_STREAM},            {"ops.engine", 4, 1, OP_STREAM},
    {"ops.share", 4, 1, OP_STREAM},             {"ops.blocks", 4, 1, OP_STREAM},
    {"ops.size", 4, 1, OP_STREAM},              {"ops.cached", 4, 1, OP_STREAM},
    {"ops.after", 4, 1, OP_STREAM},
    {"ops.duration", 8, 0, OP_STREAM},          {"ops.latency", 8, 0, OP_STREAM},
    {"ops.gap", 8, 0, OP_STREAM},               {"ops.lag", 8, 0, OP_STREAM},
    {"ops.tail", 8, 0, OP_STREAM},              {"ops.uncached", 8, 0, OP_STREAM},
    {"device_of_stream", 4, 1, DEVICE_OF_STREAM},
};

enum { THREADS = COLUMNS, ENGINES, CAPACITY, ARGUMENTS };

typedef struct {
    Py_ssize_t length, ops, streams;
    long long threads, engines, capacity;
    const int8_t *code;
    const int32_t *thread, *stream, *target;
    const int64_t *work, *call, *latency, *ends; /* `ends`: the end of an instruction's ops */
    const int32_t *op_stream, *op_engine, *op_share, *op_blocks, *op_size, *op_cached, *op_after;
    const int64_t *op_duration, *op_latency, *op_gap, *op_lag, *op_tail, *op_uncached;
    const int32_t *device_of_stream;
    const Py_ssize_t *joint; /* by op: the member of a joint operation that it is, or -1; NULL if there are none */
} Program;

/* When an op ran, and what it uses of the cache, in thousandths. */
typedef struct {
    int64_t begun, ended;
    int32_t cached;
} Served;

typedef struct {
    int64_t ready; /* when all its work so far is done */
    int64_t held;  /* until when an event holds its next op */
    int32_t index; /* of its device */
    Py_ssize_t device; /* row of its device */
    int64_t *outstanding; /* a ring: the ends of its last launches */
    long long room, next; /* `room` is the capacity, or the launches so far if fewer */
    long long launches; /* in the part at hand, up to the capacity */
    int full;
    Served last, before_last; /* its ops on an engine that serves several at a time */
    Py_ssize_t next_op; /* 1 + its first op of the launch at hand that was not seen yet, or 0 */
} Stream;

enum { SPANS = 128, WHOLE = 1000 };

/* How much of an engine is in use, in thousandths: of its rate, of the room on its multiprocessors, and of the number of
   multiprocessors that have blocks. */
typedef struct {
    int32_t rate, filled, touched;
} Use;

/* The use of an engine over spans of time: `used[i]` from `start[i]` until the next span. The first span begins at 0, the
   last one never ends, and in it nothing is in use. If there are too many, the first two become one, with the larger use:
   a late launch must not find room in the past that was not there. */
typedef struct {
    int64_t start[SPANS];
    Use used[SPANS];
    int count;
} Load;

typedef struct {
    int32_t index;
    int64_t done; /* when its streams are done with their work, and no event holds them */
} Device;

/* A launch: its stream, when its call begins and returns, and when the stream is done with the work before. */
typedef struct {
    Stream *stream;
    int64_t begin, done, follows;
    int64_t finished; /* when its last op so far ends */
} Launch;

typedef struct {
    long long capacity, threads, engines;
    int fills_gaps; /* engines serve ops by arrival, not by launch order, and several at a time */
    Py_ssize_t length, ops, streams_known; /* of the parts before */
    Py_ssize_t length_room, ops_room;
    uint64_t total; /* of all times before */
    int64_t *clock; /* by thread */
    int64_t *free;  /* by engine: when all its work so far is done */
    Load *load;     /* by engine; NULL unless gaps are filled */
    int64_t *marked, *ends; /* by instruction */
    int8_t *code;
    int32_t *thread;
    int64_t *op_ends; /* by op */
    Py_ssize_t *next_op; /* by op of the part at hand: 1 + the next op of its launch on its stream, or 0 */
    Py_ssize_t *heads;   /* the next op of each stream of the launch at hand */
    Py_ssize_t part_room;
    Stream *streams;
    Device *devices; /* one row per stream, sorted by index: the first row of an index is in use */
    int64_t done; /* of all devices */
    int64_t *start, *end, *op_start, *op_end; /* of the part at hand */
    Py_ssize_t row, op;                       /* the next instruction and op of the part at hand */
    int launching;                            /* whether `launch` is the one of that instruction */
    Launch launch;
} State;

typedef struct {
    const char *sentence;
    long long row, value, count;
} Fault;

static int
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
    if (p->op_tail[op] < 0) {
        return refuse(fault, "op %lld: its tail is negative, %lld ns", number, p->op_tail[op], 0);
    }
    if (p->op_uncached[op] < 0) {
        return refuse(fault, "op %lld: without the cache it takes %lld ns more", number, p->op_uncached[op], 0);
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

static int
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

static int
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
        !adds_up(p->op_lag, p->ops, total) || !adds_up(p->op_uncached, p->ops, total)) {
        return refuse(fault, "the program's times add up to more than 2**62 ns", 0, 0, 0);
    }
    return 0;
}

static inline int64_t
later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Adds without undefined behaviour: another thread may have changed the times since they were checked. */
static inline int64_t
plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* A stream's end never decreases, so that maxima over streams can be updated instead of recomputed. */
static inline void
keep_done(State *s, const Stream *stream)
{
    const int64_t done = later(stream->ready, stream->held);
    s->devices[stream->device].done = later(s->devices[stream->device].done, done);
    s->done = later(s->done, done);
}

static Device *
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

static inline int32_t
larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static inline int32_t
smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static inline int
same_use(Use a, Use b)
{
    return a.rate == b.rate && a.filled == b.filled && a.touched == b.touched;
}

static inline int
is_idle(Use use)
{
    return !use.rate && !use.filled;
}

static void
remove_span(Load *load, int span)
{
    load->count--;
    const size_t rest = (size_t)(load->count - span);
    memmove(load->start + span, load->start + span + 1, rest * sizeof(int64_t));
    memmove(load->used + span, load->used + span + 1, rest * sizeof(Use));
}

static int
span_at(const Load *load, int64_t time)
{
    int span = load->count - 1;
    while (load->start[span] > time) {
        span--;
    }
    return span;
}

static void
join_first_two(Load *load)
{
    const Use a = load->used[0], b = load->used[1];
    load->used[0] = (Use){larger(a.rate, b.rate), larger(a.filled, b.filled), larger(a.touched, b.touched)};
    remove_span(load, 1);
}

/* Makes a span begin at `time`. */
static void
cut(Load *load, int64_t time)
{
    if (load->start[span_at(load, time)] == time) {
        return;
    }
    if (load->count == SPANS) {
        join_first_two(load);
    }
    const int span = span_at(load, time);
    const size_t rest = (size_t)(load->count - span - 1);
    memmove(load->start + span + 2, load->start + span + 1, rest * sizeof(int64_t));
    memmove(load->used + span + 2, load->used + span + 1, rest * sizeof(Use));
    load->start[span + 1] = time;
    load->used[span + 1] = load->used[span];
    load->count++;
}

static void
join_with_previous(Load *load, int span)
{
    if (span > 0 && same_use(load->used[span], load->used[span - 1])) {
        remove_span(load, span);
    }
}

static void
occupy(Load *load, int64_t begun, int64_t done, Use more)
{
    if (begun == done) {
        return;
    }
    cut(load, begun);
    cut(load, done);
    const int first = span_at(load, begun), end = span_at(load, done);
    for (int span = first; span < end; span++) {
        Use *use = &load->used[span];
        use->rate = smaller(use->rate + more.rate, WHOLE);
        use->filled = smaller(use->filled + more.filled, WHOLE);
        use->touched = smaller(use->touched + more.touched, WHOLE);
    }
    join_with_previous(load, end);
    join_with_previous(load, first);
}

/* Returns when an idle engine can run an op without interruption. */
static int64_t
when_idle(const Load *load, int64_t time, int64_t duration)
{
    for (int span = span_at(load, time); span < load->count - 1; span++) {
        if (!is_idle(load->used[span])) {
            time = load->start[span + 1];
        }
        else if (plus(time, duration) <= load->start[span + 1]) {
            break;
        }
    }
    return time;
}

/* Times stay below the largest int64: an op may take up to a thousand times as long beside others. */
static int64_t
sum_of(int64_t time, __int128 more)
{
    const __int128 sum = time + more;
    return sum < MOST_NS ? (int64_t)sum : (int64_t)MOST_NS;
}

/* What an op needs of an engine; see `Needs` of interpreter.py. */
typedef struct {
    int32_t share, blocks, size;
    int64_t tail;
} Needs;

/* Returns how many times a multiprocessor must be filled with an op's blocks, and 0 if they find no room. */
static int64_t
waves(Needs needs, Use use)
{
    const int64_t most = WHOLE / needs.size;
    const int64_t left = use.touched ? WHOLE - (int64_t)use.filled * WHOLE / use.touched : WHOLE;
    const int64_t beside = left > 0 ? left / needs.size : 0;
    const int64_t room = (WHOLE - use.touched) * most + use.touched * beside;
    return room ? (needs.blocks + room - 1) / room : 0;
}

static int32_t
pace(Needs needs, Use use)
{
    const int64_t meeting = WHOLE - (int64_t)needs.share * use.rate / WHOLE;
    const int64_t unused = (int64_t)(WHOLE - use.rate) * WHOLE / needs.share;
    int64_t pace = meeting < unused ? meeting : unused;
    if (needs.blocks && use.touched) {
        const int64_t more = waves(needs, use);
        const int64_t placed = more ? WHOLE * waves(needs, (Use){0, 0, 0}) / more : 0;
        pace = placed < pace ? placed : pace;
    }
    return (int32_t)pace;
}

/* Returns when an op that takes a share of an engine can begin. */
static int64_t
when_room(const Load *load, int64_t time, Needs needs)
{
    for (int span = load->count ? span_at(load, time) : 0; span < load->count && !pace(needs, load->used[span]); span++) {
        time = load->start[span + 1];
    }
    return time;
}

/* Runs an op that takes a share of an engine, from `time` on, in what is not in use. Beside others it is slower. Returns
   when it begins, and sets `done`. */
static int64_t
run_beside(Load *load, int64_t time, int64_t duration, Needs needs, int64_t *done)
{
    int64_t begun = -1, from[SPANS], until[SPANS];
    int32_t taken[SPANS];
    int parts = 0;
    __int128 work = (__int128)duration * WHOLE;
    for (int span = span_at(load, time); work; span++) {
        const int32_t rate = pace(needs, load->used[span]);
        const int is_last = span == load->count - 1;
        if (rate) {
            begun = begun < 0 ? time : begun;
            const __int128 needed = (work + rate - 1) / rate;
            const int ends = is_last || needed <= load->start[span + 1] - time;
            from[parts] = time;
            until[parts] = ends ? sum_of(time, needed) : load->start[span + 1];
            taken[parts++] = (int32_t)(((int64_t)needs.share * rate + WHOLE - 1) / WHOLE);
            if (ends) {
                time = until[parts - 1];
                break;
            }
            work -= (__int128)(load->start[span + 1] - time) * rate;
        }
        time = load->start[span + 1];
    }
    const int64_t filled = (int64_t)needs.blocks * needs.size / WHOLE;
    const int64_t most = WHOLE / needs.size;
    const int full = needs.blocks >= most * WHOLE;
    const Use use = {0, full || filled > WHOLE ? WHOLE : (int32_t)filled, smaller(needs.blocks, WHOLE)};
    const int64_t leaves = time - needs.tail;
    for (int part = 0; part < parts && from[part] < leaves; part++) {
        const int64_t end = until[part] < leaves ? until[part] : leaves;
        occupy(load, from[part], end, (Use){taken[part], use.filled, use.touched});
    }
    *done = time;
    return begun < 0 ? time : begun;
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
    occupy(load, time, *done, (Use){WHOLE, WHOLE, WHOLE});
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

/* Returns how much of the cache an op uses from `since` until `time`. */
static int64_t
used_meanwhile(const Served *op, int64_t since, int64_t time)
{
    const int64_t from = later(since, op->begun), until = time < op->ended ? time : op->ended;
    return until > from ? (int64_t)((__int128)op->cached * (until - from) / (op->ended - op->begun)) : 0;
}

/* Returns whether others used so much of the cache since the last op of a stream that the data of an op is not in it. */
static int
is_evicted(const State *s, const Stream *on, int32_t cached, int64_t time)
{
    if (!on->last.cached) {
        return 0;
    }
    int64_t used = cached;
    for (Py_ssize_t i = 0; i < s->streams_known; i++) {
        const Stream *other = &s->streams[i];
        if (other != on && other->index == on->index) {
            const int64_t since = on->last.begun;
            const int64_t both =
                used_meanwhile(&other->last, since, time) + used_meanwhile(&other->before_last, since, time);
            const int64_t most = larger(other->last.cached, other->before_last.cached);
            used += both < most ? both : most;
        }
    }
    return used > WHOLE;
}

/* Returns when the op ends. */
static int64_t
run_op(const Program *p, State *s, Py_ssize_t op, int64_t time)
{
    Stream *on = &s->streams[p->op_stream[op]];
    const int32_t engine = p->op_engine[op];
    int64_t duration = p->op_duration[op];
    int64_t ended = plus(time, duration);
    if (engine >= 0) {
        const Needs needs = {p->op_share[op], p->op_blocks[op], p->op_size[op], p->op_tail[op]};
        if (s->load && needs.share && p->op_uncached[op] &&
            is_evicted(s, on, p->op_cached[op], when_room(&s->load[engine], time, needs))) {
            duration = plus(duration, p->op_uncached[op]);
        }
        time = serve(s, engine, needs, time, duration, &ended);
        if (ended > time && p->op_share[op]) {
            on->before_last = on->last;
            on->last = (Served){time, ended, p->op_cached[op]};
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
static void
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
static Py_ssize_t
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
        s->code[row] = (int8_t)code;
        s->thread[row] = p->thread[i];
    }
    return -1;
}

static int
by_index(const void *a, const void *b)
{
    const int32_t left = ((const Device *)a)->index, right = ((const Device *)b)->index;
    return (left > right) - (left < right);
}

/* Updates when a device is done: when all its streams are. */
static void
number_devices(const Program *p, State *s)
{
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->streams[i].index = p->device_of_stream[i];
        s->devices[i] = (Device){p->device_of_stream[i], 0};
    }
    if (p->streams) {
        qsort(s->devices, (size_t)p->streams, sizeof(Device), by_index);
    }
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->streams[i].device = find_device(s, p->streams, p->device_of_stream[i]) - s->devices;
        keep_done(s, &s->streams[i]);
    }
}

/* Resizes rows. Keeps the first `kept` and zeroes the others. */
static int
grow(void *place, Py_ssize_t kept, Py_ssize_t count, size_t size)
{
    void **rows = place;
    if (*rows && count <= kept) {
        return 0;
    }
    /* At least one row: the address of an empty allocation is unspecified. */
    const size_t wanted = count ? (size_t)count : 1;
    void *more = !*rows ? PyMem_Calloc(wanted, size)
                 : wanted <= PY_SSIZE_T_MAX / size ? PyMem_Realloc(*rows, wanted * size)
                                                   : NULL;
    if (!more) {
        PyErr_NoMemory();
        return -1;
    }
    if (*rows) {
        memset((char *)more + (size_t)kept * size, 0, (wanted - (size_t)kept) * size);
    }
    *rows = more;
    return 0;
}

/* Returns the capacity for `needed` rows, with an eighth extra for later parts: what a long run keeps is little more than
   its rows, and large blocks grow without being copied. */
static Py_ssize_t
room_for(Py_ssize_t room, Py_ssize_t needed)
{
    return needed <= room ? room : room && room <= PY_SSIZE_T_MAX / 4 ? later(needed, room + room / 8) : needed;
}

static int
make_room(const Program *p, State *s)
{
    const Py_ssize_t length = room_for(s->length_room, s->length + p->length);
    const Py_ssize_t ops = room_for(s->ops_room, s->ops + p->ops);
    if (grow(&s->clock, (Py_ssize_t)s->threads, (Py_ssize_t)p->threads, sizeof(int64_t)) < 0 ||
        grow(&s->free, (Py_ssize_t)s->engines, (Py_ssize_t)p->engines, sizeof(int64_t)) < 0 ||
        (s->fills_gaps && grow(&s->load, (Py_ssize_t)s->engines, (Py_ssize_t)p->engines, sizeof(Load)) < 0) ||
        grow(&s->streams, s->streams_known, p->streams, sizeof(Stream)) < 0 ||
        grow(&s->devices, s->streams_known, p->streams, sizeof(Device)) < 0 ||
        grow(&s->marked, s->length_room, length, sizeof(int64_t)) < 0 ||
        grow(&s->ends, s->length_room, length, sizeof(int64_t)) < 0 ||
        grow(&s->code, s->length_room, length, sizeof(int8_t)) < 0 ||
        grow(&s->thread, s->length_room, length, sizeof(int32_t)) < 0 ||
        grow(&s->op_ends, s->ops_room, ops, sizeof(int64_t)) < 0 ||
        (s->fills_gaps && grow(&s->next_op, s->part_room, p->ops, sizeof(Py_ssize_t)) < 0) ||
        (s->fills_gaps && grow(&s->heads, s->part_room, p->ops, sizeof(Py_ssize_t)) < 0)) {
        return -1;
    }
    s->part_room = later(s->part_room, p->ops);
    s->threads = p->threads;
    s->engines = p->engines;
    s->length_room = length;
    s->ops_room = ops;
    if (p->streams > s->streams_known) {
        s->streams_known = p->streams;
        number_devices(p, s);
    }
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->streams[i].launches = 0;
    }
    for (Py_ssize_t i = 0; i < p->length; i++) {
        if (p->code[i] == LAUNCH && s->streams[p->stream[i]].launches < s->capacity) {
            s->streams[p->stream[i]].launches++;
        }
    }
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        Stream *stream = &s->streams[i];
        long long room = stream->room + stream->launches;
        room = room < s->capacity ? room : s->capacity;
        if (room > stream->room) {
            room = later(room, later(stream->room * 2, 16));
            room = room < s->capacity ? room : s->capacity;
            if (grow(&stream->outstanding, (Py_ssize_t)stream->room, (Py_ssize_t)room, sizeof(int64_t)) < 0) {
                return -1;
            }
            stream->room = room;
        }
    }
    return 0;
}

static void
release(State *s)
{
    for (Py_ssize_t i = 0; s->streams && i < s->streams_known; i++) {
        PyMem_Free(s->streams[i].outstanding);
    }
    PyMem_Free(s->clock);
    PyMem_Free(s->free);
    PyMem_Free(s->load);
    PyMem_Free(s->marked);
    PyMem_Free(s->ends);
    PyMem_Free(s->code);
    PyMem_Free(s->thread);
    PyMem_Free(s->op_ends);
    PyMem_Free(s->next_op);
    PyMem_Free(s->heads);
    PyMem_Free(s->streams);
    PyMem_Free(s->devices);
}

static PyObject *
times(Py_ssize_t count, int64_t **rows)
{
    if (count > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(int64_t)) {
        return PyErr_NoMemory();
    }
    /* Created empty and then resized: CPython 3.11 reads unset memory if creating it at full size fails. */
    PyObject *array = PyByteArray_FromStringAndSize(NULL, 0);
    if (!array || PyByteArray_Resize(array, count * (Py_ssize_t)sizeof(int64_t)) < 0) {
        Py_XDECREF(array);
        return NULL;
    }
    *rows = (int64_t *)PyByteArray_AsString(array);
    return array;
}

static void
raise_fault(const Fault *fault)
{
    PyObject *sentence = PyUnicode_FromFormat(fault->sentence, fault->row, fault->value, fault->count);
    if (sentence) {
        PyErr_SetObject(PyExc_ValueError, sentence);
        Py_DECREF(sentence);
    }
}

/* Returns room for the times of a part: (start, end, op_start, op_end), each as bytes of int64. */
static PyObject *
new_times(const Program *p, State *s)
{
    PyObject *result = NULL, *arrays[4] = {NULL, NULL, NULL, NULL};
    if ((arrays[0] = times(p->length, &s->start)) && (arrays[1] = times(p->length, &s->end)) &&
        (arrays[2] = times(p->ops, &s->op_start)) && (arrays[3] = times(p->ops, &s->op_end))) {
        result = PyTuple_Pack(4, arrays[0], arrays[1], arrays[2], arrays[3]);
    }
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(arrays[i]);
    }
    return result;
}

/* Checks a part and makes room for it. Makes no objects, so no other thread runs before the part does. */
static int
begin_part(const Program *p, State *s, uint64_t *total)
{
    Fault fault = {0};
    if (check(p, s, total, &fault) < 0) {
        raise_fault(&fault);
        return -1;
    }
    s->row = s->op = 0;
    return make_room(p, s);
}

static int
is_column(const Py_buffer *view, int bytes)
{
    const char *format = view->format ? view->format : "B";
    format += *format == '@';
    const char *formats = bytes == 1 ? "b" : "ilq";
    return view->ndim == 1 && view->itemsize == bytes && *format && !format[1] && strchr(formats, *format) &&
           PyBuffer_IsContiguous(view, 'C') && (!view->shape[0] || (uintptr_t)view->buf % (uintptr_t)bytes == 0);
}

static int
take_column(PyObject *object, const char *name, int bytes, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
        if (is_column(view, bytes)) {
            return 0;
        }
        PyBuffer_Release(view);
    }
    else if (PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return -1;
    }
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s must be one contiguous column of int%d", name, 8 * bytes);
    return -1;
}

static int
take_count(PyObject *object, const char *name, long long least, long long most, long long *count)
{
    int overflow;
    PyObject *number = PyNumber_Index(object);
    if (!number) {
        return -1;
    }
    *count = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow || *count < least || *count > most) {
        PyErr_Format(PyExc_ValueError, "%s must be from %lld to %lld, not %S", name, least, most, number);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    return 0;
}

/* The columns of a program, as they were taken. */
typedef struct {
    Py_buffer views[COLUMNS];
    void *copies[COLUMNS];
    int taken;
} Columns;

static void
give_back(Columns *held)
{
    for (int i = 0; i < COLUMNS; i++) {
        PyMem_Free(held->copies[i]);
    }
    while (held->taken) {
        PyBuffer_Release(&held->views[--held->taken]);
    }
}

/* Takes a program from arguments. If `capacity` is not NULL, it is the last of them. Columns of indices are copied if the
   program is to run without the GIL. */
static int
take_program(PyObject *const *arguments, Program *p, Columns *held, long long *capacity, int without_gil)
{
    const Py_buffer *views = held->views;
    const void *rows[COLUMNS];
    for (; held->taken < COLUMNS; held->taken++) {
        const int at = held->taken;
        if (take_column(arguments[at], columns[at].name, columns[at].bytes, &held->views[at]) < 0) {
            return -1;
        }
    }
    for (int i = 0; i < COLUMNS; i++) {
        const int like = columns[i].like;
        if (views[i].shape[0] != views[like].shape[0]) {
            PyErr_Format(PyExc_ValueError, "%s has %zd rows, and %s has %zd", columns[i].name, views[i].shape[0],
                         columns[like].name, views[like].shape[0]);
            return -1;
        }
    }
    if (take_count(arguments[THREADS], "threads", 0, MOST_THREADS, &p->threads) < 0 ||
        take_count(arguments[ENGINES], "engines", 0, MOST_THREADS, &p->engines) < 0 ||
        (capacity && take_count(arguments[CAPACITY], "capacity", 1, MOST_CAPACITY, capacity) < 0)) {
        return -1;
    }
    for (int i = 0; i < COLUMNS; i++) {
        rows[i] = views[i].buf;
        if (columns[i].indices && without_gil) {
            if (!(held->copies[i] = PyMem_Malloc(views[i].len ? (size_t)views[i].len : 1))) {
                PyErr_NoMemory();
                return -1;
            }
            if (views[i].len) {
                memcpy(held->copies[i], views[i].buf, (size_t)views[i].len);
            }
            rows[i] = held->copies[i];
        }
    }
    p->length = views[CODE].shape[0];
    p->ops = views[OP_STREAM].shape[0];
    p->streams = views[DEVICE_OF_STREAM].shape[0];
    p->code = rows[CODE];
    p->thread = rows[THREAD];
    p->stream = rows[STREAM];
    p->target = rows[TARGET];
    p->work = rows[WORK];
    p->call = rows[CALLS];
    p->latency = rows[LATENCY];
    p->ends = rows[OPS];
    p->op_stream = rows[OP_STREAM];
    p->op_engine = rows[OP_ENGINE];
    p->op_share = rows[OP_SHARE];
    p->op_blocks = rows[OP_BLOCKS];
    p->op_size = rows[OP_SIZE];
    p->op_cached = rows[OP_CACHED];
    p->op_after = rows[OP_AFTER];
    p->op_duration = rows[OP_DURATION];
    p->op_latency = rows[OP_LATENCY];
    p->op_gap = rows[OP_GAP];
    p->op_lag = rows[OP_LAG];
    p->op_tail = rows[OP_TAIL];
    p->op_uncached = rows[OP_UNCACHED];
    p->device_of_stream = rows[DEVICE_OF_STREAM];
    return 0;
}

/* Feeds a part to `state`. If it is NULL, feeds a new state, and the last argument is its capacity. */
static PyObject *
feed_arguments(PyObject *const *arguments, State *state)
{
    PyObject *result = NULL;
    Columns held = {0};
    Program p = {0};
    State fresh = {0}, *s = state ? state : &fresh;
    uint64_t total = 0;
    if (take_program(arguments, &p, &held, state ? NULL : &fresh.capacity, 1) == 0 && (result = new_times(&p, s)) &&
        begin_part(&p, s, &total) < 0) {
        Py_CLEAR(result);
    }
    if (result) {
        Py_BEGIN_ALLOW_THREADS
        run(&p, s);
        Py_END_ALLOW_THREADS
        s->length += p.length;
        s->ops += p.ops;
        s->total = total;
    }
    release(&fresh);
    give_back(&held);
    return result;
}

/* Programs that wait for each other at joint operations. A member is one program's part of a joint operation. */
typedef struct {
    Py_ssize_t programs, operations, members;
    Program *program;
    State *state;
    Columns *held;
    Py_ssize_t *joint;               /* by op of all programs */
    const int64_t *first;            /* by operation: its first member; and the number of all members */
    const int64_t *of, *op;          /* by member: its program, and its op there */
    const int64_t *transfer;         /* by member: from when the last one has arrived to its end */
    const int64_t *offset;           /* by program: when its threads begin */
    int64_t *latest;                 /* by operation: when the last member so far arrived */
    Py_ssize_t *arrived, *operation; /* by operation: how many arrived; by member: its operation */
    Py_ssize_t *ready;               /* a ring of the programs that can go on */
    Py_ssize_t *stopped;             /* members at which programs stopped since the ring was empty */
    int8_t *left_out;                /* by operation: whether its members wait for nobody */
} Job;

static Py_ssize_t *
joint_of(const Job *job, Py_ssize_t member)
{
    return &job->joint[job->program[job->of[member]].joint - job->joint + job->op[member]];
}

static int
has_all(const Job *job, Py_ssize_t operation)
{
    return job->arrived[operation] == job->first[operation + 1] - job->first[operation];
}

/* Leaves out an operation at which programs wait in a circle: its ops become usual ones. */
static void
leave_out(Job *job, Py_ssize_t operation)
{
    for (Py_ssize_t member = job->first[operation]; member < job->first[operation + 1]; member++) {
        Py_ssize_t *joint = joint_of(job, member);
        *joint = *joint == member ? -1 : *joint; /* another operation may have the op, too */
    }
    job->left_out[operation] = 1;
}

static void
run_job(Job *job)
{
    Py_ssize_t next = 0, waiting = job->programs; /* the ring is full at first: all can begin */
    Py_ssize_t stopped = 0;
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        job->ready[i] = i;
    }
    while (waiting) {
        const Py_ssize_t which = job->ready[next];
        next = (next + 1) % job->programs;
        waiting--;
        State *s = &job->state[which];
        const Py_ssize_t member = run(&job->program[which], s);
        const Py_ssize_t operation = member < 0 ? -1 : job->operation[member];
        if (member >= 0) {
            job->stopped[stopped++] = member;
            job->arrived[operation]++;
            job->latest[operation] = later(job->latest[operation], s->op_start[s->op]);
        }
        if (member >= 0 && has_all(job, operation)) {
            for (Py_ssize_t each = job->first[operation]; each < job->first[operation + 1]; each++) {
                const Py_ssize_t other = job->of[each];
                end_joint(&job->program[other], &job->state[other], plus(job->latest[operation], job->transfer[each]));
                job->ready[(next + waiting++) % job->programs] = other;
            }
        }
        if (waiting) {
            continue;
        }
        for (Py_ssize_t i = 0; i < stopped; i++) {
            const Py_ssize_t at = job->operation[job->stopped[i]];
            if (!has_all(job, at)) {
                if (!job->left_out[at]) {
                    leave_out(job, at);
                }
                job->ready[(next + waiting++) % job->programs] = job->of[job->stopped[i]];
            }
        }
        stopped = 0;
    }
}

static int
check_job(const Job *job, uint64_t total, Fault *fault)
{
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        if (job->offset[i] < 0) {
            return refuse(fault, "program %lld: it begins at %lld ns", i, job->offset[i], 0);
        }
    }
    for (Py_ssize_t i = 0; i <= job->operations; i++) {
        const int64_t least = i ? job->first[i - 1] : 0;
        if (job->first[i] < least || job->first[i] > job->members || (!i && job->first[i])) {
            return refuse(fault, "operation %lld: its members begin at %lld", i, job->first[i], 0);
        }
    }
    if (job->first[job->operations] != job->members) {
        return refuse(fault, "the operations' members end at %lld, and there are %lld", job->first[job->operations],
                      job->members, 0);
    }
    for (Py_ssize_t i = 0; i < job->members; i++) {
        if (job->of[i] < 0 || job->of[i] >= job->programs) {
            return refuse(fault, "member %lld: program %lld is none of %lld", i, job->of[i], job->programs);
        }
        if (job->op[i] < 0 || job->op[i] >= job->program[job->of[i]].ops) {
            return refuse(fault, "member %lld: op %lld is none of its program's %lld", i, job->op[i],
                          job->program[job->of[i]].ops);
        }
        if (job->transfer[i] < 0) {
            return refuse(fault, "member %lld: its transfer is negative, %lld ns", i, job->transfer[i], 0);
        }
    }
    if (!adds_up(job->transfer, job->members, &total) || !adds_up(job->offset, job->programs, &total)) {
        return refuse(fault, "the programs' times add up to more than 2**62 ns", 0, 0, 0);
    }
    return 0;
}

PyDoc_STRVAR(replay_doc, "replay(columns …, device_of_stream, threads, engines, capacity)\n--\n\n"
                         "(start, end, op_start, op_end) of a program, each the bytes of a column of int64.\n\n"
                         "Raises ValueError where something is not as a program has it.");

static PyObject *
replay(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != ARGUMENTS) {
        return PyErr_Format(PyExc_TypeError, "replay takes %d arguments, not %zd", (int)ARGUMENTS, count);
    }
    return feed_arguments(arguments, NULL);
}

enum { FIRST, OF, MEMBER_OP, TRANSFER, OFFSET, JOB_COLUMNS };
static const char *const job_columns[JOB_COLUMNS] = {"first", "program", "op", "transfer", "offsets"};

/* Takes the joint operations of a job, whose programs were taken. `views` are as many as there are columns. */
static int
take_job(PyObject *const *arguments, Job *job, Py_buffer *views, int *taken)
{
    for (; *taken < JOB_COLUMNS; ++*taken) {
        if (take_column(arguments[*taken], job_columns[*taken], sizeof(int64_t), &views[*taken]) < 0) {
            return -1;
        }
    }
    job->operations = views[FIRST].shape[0] - 1;
    job->members = views[OF].shape[0];
    if (job->operations < 0 || views[MEMBER_OP].shape[0] != job->members || views[TRANSFER].shape[0] != job->members ||
        views[OFFSET].shape[0] != job->programs) {
        PyErr_SetString(PyExc_ValueError, "the columns of joint operations differ in length");
        return -1;
    }
    job->first = views[FIRST].buf;
    job->of = views[OF].buf;
    job->op = views[MEMBER_OP].buf;
    job->transfer = views[TRANSFER].buf;
    job->offset = views[OFFSET].buf;
    return 0;
}

/* Makes all programs ready to run: puts their times into `parts`, and the members of joint operations to their ops. */
static int
begin_job(Job *job, PyObject *parts)
{
    uint64_t total = 0;
    Fault fault = {0};
    Py_ssize_t ops = 0;
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        PyObject *part = new_times(&job->program[i], &job->state[i]);
        if (!part || PyList_SetItem(parts, i, part) < 0) {
            return -1;
        }
        ops += job->program[i].ops;
    }
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        job->state[i].total = total;
        if (begin_part(&job->program[i], &job->state[i], &total) < 0) {
            return -1;
        }
    }
    if (check_job(job, total, &fault) < 0) {
        raise_fault(&fault);
        return -1;
    }
    if (grow(&job->joint, 0, ops, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->latest, 0, job->operations, sizeof(int64_t)) < 0 ||
        grow(&job->arrived, 0, job->operations, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->operation, 0, job->members, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->ready, 0, job->programs, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->stopped, 0, job->members, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->left_out, 0, job->operations, sizeof(int8_t)) < 0) {
        return -1;
    }
    memset(job->joint, -1, (size_t)ops * sizeof(Py_ssize_t));
    Py_ssize_t *joint = job->joint;
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        job->program[i].joint = joint;
        joint += job->program[i].ops;
        for (long long thread = 0; thread < job->program[i].threads; thread++) {
            job->state[i].clock[thread] = job->offset[i];
        }
    }
    for (Py_ssize_t i = 0; i < job->operations; i++) {
        for (Py_ssize_t member = job->first[i]; member < job->first[i + 1]; member++) {
            *joint_of(job, member) = member;
            job->operation[member] = i;
        }
    }
    return 0;
}

/* Returns the operations that were left out. */
static PyObject *
left_out(const Job *job)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found && i < job->operations; i++) {
        if (job->left_out[i]) {
            PyObject *number = PyLong_FromSsize_t(i);
            if (!number || PyList_Append(found, number) < 0) {
                Py_CLEAR(found);
            }
            Py_XDECREF(number);
        }
    }
    return found;
}

PyDoc_STRVAR(replay_job_doc,
             "replay_job(programs, first, program, op, transfer, offsets)\n--\n\n"
             "The times of programs that wait for each other at joint operations, as those of `replay`, and the numbers of "
             "the operations that were left out, since programs would wait there in a circle.\n\n"
             "`programs` is a tuple of tuples, the arguments of `replay`; the others are columns of int64.\n\n"
             "Raises ValueError where something is not as a program has it.");

static PyObject *
replay_job(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *result = NULL, *parts = NULL, *found = NULL;
    Py_buffer views[JOB_COLUMNS];
    int taken = 0;
    Job job = {0};
    if (count != 1 + JOB_COLUMNS || !PyTuple_Check(arguments[0])) {
        return PyErr_Format(PyExc_TypeError, "replay_job takes a tuple of programs and %d columns", (int)JOB_COLUMNS);
    }
    job.programs = PyTuple_Size(arguments[0]);
    if (!(parts = PyList_New(job.programs)) || grow(&job.program, 0, job.programs, sizeof(Program)) < 0 ||
        grow(&job.state, 0, job.programs, sizeof(State)) < 0 || grow(&job.held, 0, job.programs, sizeof(Columns)) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < job.programs; i++) {
        PyObject *columns_of = PyTuple_GetItem(arguments[0], i), *each[ARGUMENTS];
        if (!PyTuple_Check(columns_of) || PyTuple_Size(columns_of) != ARGUMENTS) {
            PyErr_Format(PyExc_TypeError, "a program is a tuple of %d", (int)ARGUMENTS);
            goto done;
        }
        for (int argument = 0; argument < ARGUMENTS; argument++) {
            each[argument] = PyTuple_GetItem(columns_of, argument);
        }
        if (take_program(each, &job.program[i], &job.held[i], &job.state[i].capacity, 0) < 0) {
            goto done;
        }
    }
    if (take_job(arguments + 1, &job, views, &taken) < 0 || begin_job(&job, parts) < 0) {
        goto done;
    }
    run_job(&job);
    if ((found = left_out(&job))) {
        result = PyTuple_Pack(2, parts, found);
    }
done:
    Py_XDECREF(parts);
    Py_XDECREF(found);
    for (Py_ssize_t i = 0; i < job.programs; i++) {
        if (job.state) {
            release(&job.state[i]);
        }
        if (job.held) {
            give_back(&job.held[i]);
        }
    }
    while (taken) {
        PyBuffer_Release(&views[--taken]);
    }
    PyMem_Free(job.program);
    PyMem_Free(job.state);
    PyMem_Free(job.held);
    PyMem_Free(job.joint);
    PyMem_Free(job.latest);
    PyMem_Free(job.arrived);
    PyMem_Free(job.operation);
    PyMem_Free(job.ready);
    PyMem_Free(job.stopped);
    PyMem_Free(job.left_out);
    return result;
}

typedef struct {
    PyObject_HEAD
    State state;
    int busy; /* within a feed, which releases the GIL */
} Replay;

static PyObject *
replay_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"capacity", "fills_gaps", NULL};
    PyObject *capacity;
    State state = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|p:Replay", names, &capacity, &state.fills_gaps) ||
        take_count(capacity, "capacity", 1, MOST_CAPACITY, &state.capacity) < 0) {
        return NULL;
    }
    Replay *self = (Replay *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self) {
        self->state = state;
    }
    return (PyObject *)self;
}

static void
replay_dealloc(Replay *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    release(&self->state);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int
refuse_while_busy(const Replay *self)
{
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread feeds this replay");
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(feed_doc, "feed(columns …, device_of_stream, threads, engines)\n--\n\n"
                       "(start, end, op_start, op_end) of the program's next part, each the bytes of a column of "
                       "int64.\n\nRaises ValueError where something is not as a program has it.");

static PyObject *
replay_feed(Replay *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != CAPACITY) {
        return PyErr_Format(PyExc_TypeError, "feed takes %d arguments, not %zd", (int)CAPACITY, count);
    }
    if (refuse_while_busy(self) < 0) {
        return NULL;
    }
    self->busy = 1;
    PyObject *result = feed_arguments(arguments, &self->state);
    self->busy = 0;
    return result;
}

/* Returns the index in the argument, or -1 with an IndexError. */
static long long
index_below(PyObject *argument, long long count, const char *what)
{
    const long long index = PyLong_AsLongLong(argument);
    if (index == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (index < 0 || index >= count) {
        PyErr_Format(PyExc_IndexError, "%s %lld is none of %lld", what, index, count);
        return -1;
    }
    return index;
}

static PyObject *
replay_clock(Replay *self, PyObject *argument)
{
    const long long thread = refuse_while_busy(self) < 0 ? -1 : index_below(argument, self->state.threads, "thread");
    return thread < 0 ? NULL : PyLong_FromLongLong(self->state.clock[thread]);
}

static PyObject *
replay_done(Replay *self, PyObject *argument)
{
    const long long row =
        refuse_while_busy(self) < 0 ? -1 : index_below(argument, self->state.streams_known, "stream");
    if (row < 0) {
        return NULL;
    }
    const Stream *stream = &self->state.streams[row];
    return PyLong_FromLongLong(later(stream->ready, stream->held));
}

static PyObject *
replay_marked(Replay *self, PyObject *argument)
{
    const long long row =
        refuse_while_busy(self) < 0 ? -1 : index_below(argument, self->state.length, "instruction");
    return row < 0 ? NULL : PyLong_FromLongLong(self->state.marked[row]);
}

static PyMethodDef replay_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))replay_feed, METH_FASTCALL, feed_doc},
    {"clock", (PyCFunction)replay_clock, METH_O, "clock(thread)\n--\n\nWhen a thread has done all so far."},
    {"done", (PyCFunction)replay_done, METH_O, "done(stream)\n--\n\nWhen a stream has done all so far."},
    {"marked", (PyCFunction)replay_marked, METH_O,
     "marked(instruction)\n--\n\nWhen what this RECORD marked is done; of other instructions 0."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot replay_slots[] = {
    {Py_tp_new, (void *)replay_new},
    {Py_tp_dealloc, (void *)replay_dealloc},
    {Py_tp_methods, replay_methods},
    {Py_tp_doc, "Replay(capacity, fills_gaps=False)\n--\n\nA program that is replayed part by part."},
    {0, NULL},
};

static PyType_Spec replay_spec = {
    .name = "unstall.replay._engine.Replay",
    .basicsize = sizeof(Replay),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = replay_slots,
};

static int
add_types(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &replay_spec, NULL);
    const int failed = !type || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyMethodDef methods[] = {
    {"replay", (PyCFunction)(void (*)(void))replay, METH_FASTCALL, replay_doc},
    {"replay_job", (PyCFunction)(void (*)(void))replay_job, METH_FASTCALL, replay_job_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_types}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_engine", .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__engine(void)
{
    return PyModuleDef_Init(&module);
}
