/* The replay engine in C. The reference implementation, interpreter.py, defines its results; validate.py
   defines its errors, with the same messages.

   A replay can be fed a program part by part: `State` is kept between the parts. `target` and `op_after` count from the
   beginning of the first part; the ends of an instruction's ops count from the beginning of its own part.

   Columns are checked for type and length. Columns of indices are copied before they are checked if the loop runs without
   the GIL, since another thread could change the caller's columns. A job is replayed with the GIL, without copies: it
   may have thousands of programs. */

#ifndef UNSTALL_REPLAY_ENGINE_H
#define UNSTALL_REPLAY_ENGINE_H

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
    OP_STREAM, OP_ENGINE, OP_SHARE, OP_BLOCKS, OP_SIZE, OP_CACHED, OP_DATA, OP_AFTER, OP_DURATION, OP_LATENCY, OP_GAP,
    OP_LAG, OP_UNCACHED, OP_AGAIN,
    DEVICE_OF_STREAM, COLUMNS
};

enum { THREADS = COLUMNS, ENGINES, CAPACITY, ARGUMENTS };

typedef struct {
    Py_ssize_t length, ops, streams;
    long long threads, engines, capacity;
    const int8_t *code;
    const int32_t *thread, *stream, *target;
    const int64_t *work, *call, *latency, *ends; /* `ends`: the end of an instruction's ops */
    const int32_t *op_stream, *op_engine, *op_share, *op_blocks, *op_size, *op_cached, *op_data, *op_after;
    const int64_t *op_duration, *op_latency, *op_gap, *op_lag, *op_uncached, *op_again;
    const int32_t *device_of_stream;
    const Py_ssize_t *joint; /* by op: the member of a joint operation that it is, or -1; NULL if there are none */
} Program;

/* When an op ran, how long it takes alone, what it uses of the cache, in thousandths, and with which data. */
typedef struct {
    int64_t begun, ended, duration;
    int32_t cached, data;
} Served;

enum { RECENT = 64 };

typedef struct {
    int64_t ready; /* when all its work so far is done */
    int64_t held;  /* until when an event holds its next op */
    int32_t index; /* of its device */
    Py_ssize_t device; /* row of its device */
    int64_t *outstanding; /* a ring: the ends of its last launches */
    long long room, next; /* `room` is the capacity, or the launches so far if fewer */
    long long launches; /* in the part at hand, up to the capacity */
    int full;
    Served *recent; /* a ring: its last ops on engines that serve several at a time; NULL unless gaps are filled */
    int next_recent;
    Py_ssize_t next_op; /* 1 + its first op of the launch at hand that was not seen yet, or 0 */
} Stream;

enum { SPANS = 128, WHOLE = 1000, CROWDED = 100, KEPT = 530, LOST = 870 };

/* How much of an engine is in use, in thousandths: the sum of the shares of its ops, up to twice the whole; of the room
   on its multiprocessors; and of the number of multiprocessors that have blocks. */
typedef struct {
    int32_t shares, filled, touched;
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
    int is_whole;   /* the part at hand is the only one: nothing of it is kept beside its times */
    Py_ssize_t length, ops, streams_known; /* of the parts before */
    Py_ssize_t length_room, ops_room;
    uint64_t total; /* of all times before */
    int64_t *clock; /* by thread */
    int64_t *free;  /* by engine: when all its work so far is done */
    Load *load;     /* by engine; NULL unless gaps are filled */
    int64_t *marked, *ends; /* by instruction; `ends` is `end` if the part is the only one */
    int8_t *code;
    int32_t *thread;
    int64_t *op_ends; /* by op; `op_end` if the part is the only one */
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

/* What an op needs of an engine; see `Needs` of interpreter.py. */
typedef struct {
    int32_t share, blocks, size;
} Needs;

/* The columns of a program, as they were taken. */
typedef struct {
    Py_buffer views[COLUMNS];
    void *copies[COLUMNS];
    int taken;
} Columns;

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

#pragma GCC visibility push(hidden)

/* checks.c */
int refuse(Fault *fault, const char *sentence, long long row, long long value, long long count);
int adds_up(const int64_t *times, Py_ssize_t count, uint64_t *total);
int check(const Program *p, const State *s, uint64_t *total, Fault *fault);

/* loads.c */
void occupy(Load *load, int64_t begun, int64_t done, Use more);
int64_t when_idle(const Load *load, int64_t time, int64_t duration);
int64_t when_room(const Load *load, int64_t time, Needs needs);
int64_t run_beside(Load *load, int64_t time, int64_t duration, Needs needs, int64_t *done);

/* run.c */
void keep_done(State *s, const Stream *stream);
Device *find_device(const State *s, Py_ssize_t streams, int32_t index);
void end_joint(const Program *p, State *s, int64_t ended);
Py_ssize_t run(const Program *p, State *s);

/* rows.c */
int grow(void *place, Py_ssize_t kept, Py_ssize_t count, size_t size);
int make_room(const Program *p, State *s);
void release(State *s);

/* columns.c */
void raise_fault(const Fault *fault);
PyObject *new_times(const Program *p, State *s);
int begin_part(const Program *p, State *s, uint64_t *total);
int take_column(PyObject *object, const char *name, int bytes, Py_buffer *view);
int take_count(PyObject *object, const char *name, long long least, long long most, long long *count);
void give_back(Columns *held);
int take_program(PyObject *const *arguments, Program *p, Columns *held, long long *capacity, int without_gil);

/* job.c */
PyObject *replay_job(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count);

#pragma GCC visibility pop

#endif
