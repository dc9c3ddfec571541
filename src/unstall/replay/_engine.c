/* The replay engine in C. Its twin in Python, interpreter.py, is the definition of what it does, and check.py that of
   what it refuses; both say the same sentences.

   A column is refused unless it is what it should be, and those that hold indices are copied before they are checked:
   the loop runs without the GIL, so another thread could change the caller's. */

#define Py_LIMITED_API 0x030B0000 /* from 3.11 on it has the buffer protocol */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CALL, LAUNCH, RECORD, STREAM_WAIT, SYNC_STREAM, SYNC_DEVICE, SYNC_EVENT, JOIN, CODES };

/* Every time is the sum of some of the program's times, each taken once: while they all add up to this, none overflows. */
#define MOST_NS ((uint64_t)1 << 62)
#define MOST_THREADS ((long long)1 << 24)
#define MOST_CAPACITY INT32_MAX

enum {
    CODE, THREAD, STREAM, TARGET, WORK, CALLS, LATENCY, OPS,
    OP_STREAM, OP_ENGINE, OP_AFTER, OP_DURATION, OP_LATENCY, OP_GAP, OP_LAG,
    DEVICE_OF_STREAM, COLUMNS
};

static const struct {
    const char *name;
    int bytes;
    int indices;
    int like; /* the column that it is as long as */
} columns[COLUMNS] = {
    {"instructions.code", 1, 1, CODE},          {"instructions.thread", 4, 1, CODE},
    {"instructions.stream", 4, 1, CODE},        {"instructions.target", 4, 1, CODE},
    {"instructions.work", 8, 0, CODE},          {"instructions.call", 8, 0, CODE},
    {"instructions.latency", 8, 0, CODE},       {"instructions.ops", 8, 1, CODE},
    {"ops.stream", 4, 1, OP_STREAM},            {"ops.engine", 4, 1, OP_STREAM},
    {"ops.after", 4, 1, OP_STREAM},             {"ops.duration", 8, 0, OP_STREAM},
    {"ops.latency", 8, 0, OP_STREAM},           {"ops.gap", 8, 0, OP_STREAM},
    {"ops.lag", 8, 0, OP_STREAM},               {"device_of_stream", 4, 1, DEVICE_OF_STREAM},
};

enum { THREADS = COLUMNS, ENGINES, CAPACITY, ARGUMENTS };

typedef struct {
    Py_ssize_t length, ops, streams;
    long long threads, engines, capacity;
    const int8_t *code;
    const int32_t *thread, *stream, *target;
    const int64_t *work, *call, *latency, *ends; /* `ends`: of an instruction's ops */
    const int32_t *op_stream, *op_engine, *op_after;
    const int64_t *op_duration, *op_latency, *op_gap, *op_lag;
    const int32_t *device_of_stream;
} Program;

typedef struct {
    int64_t ready; /* when all that it has been given is done */
    int64_t held;  /* until when an event holds its next op */
    Py_ssize_t device;
    int64_t *outstanding; /* a ring: when its last launches are done */
    Py_ssize_t room, next; /* `room` is the program's capacity, or all its launches where they are fewer */
    int full;
} Stream;

typedef struct {
    int32_t index;
    int64_t done; /* when all that its streams have been given is done, and no event holds them */
} Device;

typedef struct {
    int64_t *clock; /* by thread */
    int64_t *free;  /* by engine */
    int64_t *marked; /* by instruction */
    int64_t *rings;
    Stream *streams;
    Device *devices; /* a row for each stream, in order of indices: the first of an index is the one in use */
    int64_t done; /* of all devices */
    int64_t *start, *end, *op_start, *op_end;
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

static int
check_instruction(const Program *p, Py_ssize_t i, Fault *fault)
{
    const int code = p->code[i];
    const int32_t thread = p->thread[i], stream = p->stream[i], target = p->target[i];
    const int64_t first = i ? p->ends[i - 1] : 0;
    if (code < 0 || code >= CODES) {
        return refuse(fault, "instruction %lld: there is no code %lld", i, code, 0);
    }
    if (thread < 0 || thread >= p->threads) {
        return refuse(fault, "instruction %lld: thread %lld is none of the program's %lld", i, thread, p->threads);
    }
    if ((code == LAUNCH || code == RECORD || code == STREAM_WAIT || code == SYNC_STREAM) &&
        (stream < 0 || stream >= p->streams)) {
        return refuse(fault, "instruction %lld: stream %lld is none of the program's %lld", i, stream, p->streams);
    }
    if (code == SYNC_DEVICE && stream < -1) {
        return refuse(fault, "instruction %lld: %lld is neither a device nor -1, which is every device", i, stream, 0);
    }
    if ((code == STREAM_WAIT || code == SYNC_EVENT) && (target < 0 || target >= i || p->code[target] != RECORD)) {
        return refuse(fault, "instruction %lld: its target %lld is not an earlier RECORD", i, target, 0);
    }
    if (code == JOIN && (target < 0 || target >= i || p->thread[target] == thread)) {
        return refuse(fault, "instruction %lld: its target %lld is not an earlier instruction of another thread", i,
                      target, 0);
    }
    if (p->work[i] < 0) {
        return refuse(fault, "instruction %lld: its work is negative, %lld ns", i, p->work[i], 0);
    }
    if (p->call[i] < 0) {
        return refuse(fault, "instruction %lld: its call is negative, %lld ns", i, p->call[i], 0);
    }
    if (p->ends[i] < first) {
        return refuse(fault, "instruction %lld: its ops end at %lld, before they begin at %lld", i, p->ends[i], first);
    }
    if (p->ends[i] > p->ops) {
        return refuse(fault, "instruction %lld: its ops end at %lld, and there are %lld", i, p->ends[i], p->ops);
    }
    if (p->ends[i] > first && code != LAUNCH) {
        return refuse(fault, "instruction %lld: it has ops and is not a LAUNCH", i, 0, 0);
    }
    return 0;
}

static int
check_op(const Program *p, Py_ssize_t op, Fault *fault)
{
    const int32_t stream = p->op_stream[op], engine = p->op_engine[op], after = p->op_after[op];
    if (stream < 0 || stream >= p->streams) {
        return refuse(fault, "op %lld: stream %lld is none of the program's %lld", op, stream, p->streams);
    }
    if (engine < -1 || engine >= p->engines) {
        return refuse(fault, "op %lld: engine %lld is none of the program's %lld", op, engine, p->engines);
    }
    if (after < -1 || after >= op) {
        return refuse(fault, "op %lld: it follows op %lld, which is not an earlier one", op, after, 0);
    }
    if (p->op_duration[op] < 0) {
        return refuse(fault, "op %lld: its duration is negative, %lld ns", op, p->op_duration[op], 0);
    }
    if (p->op_gap[op] < 0) {
        return refuse(fault, "op %lld: its gap is negative, %lld ns", op, p->op_gap[op], 0);
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

/* Fills in `room` of the streams too. */
static int
check(const Program *p, State *s, Fault *fault)
{
    for (Py_ssize_t i = 0; i < p->length; i++) {
        if (check_instruction(p, i, fault) < 0) {
            return -1;
        }
        if (p->code[i] == LAUNCH && s->streams[p->stream[i]].room < p->capacity) {
            s->streams[p->stream[i]].room++;
        }
    }
    const int64_t last = p->length ? p->ends[p->length - 1] : 0;
    if (last != p->ops) {
        return refuse(fault, "the instructions' ops end at %lld, and there are %lld", last, p->ops, 0);
    }
    for (Py_ssize_t op = 0; op < p->ops; op++) {
        if (check_op(p, op, fault) < 0) {
            return -1;
        }
    }
    uint64_t total = 0;
    if (!adds_up(p->work, p->length, &total) || !adds_up(p->call, p->length, &total) ||
        !adds_up(p->latency, p->length, &total) || !adds_up(p->op_duration, p->ops, &total) ||
        !adds_up(p->op_latency, p->ops, &total) || !adds_up(p->op_gap, p->ops, &total) ||
        !adds_up(p->op_lag, p->ops, &total)) {
        return refuse(fault, "the program's times add up to more than 2**62 ns", 0, 0, 0);
    }
    return 0;
}

static inline int64_t
later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Without undefined behaviour, whatever another thread has done to the times since they were checked. */
static inline int64_t
plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* A stream is never done sooner than it was, so that maxima over streams can be kept rather than looked for. */
static inline void
keep_done(State *s, const Stream *stream)
{
    const int64_t done = later(stream->ready, stream->held);
    s->devices[stream->device].done = later(s->devices[stream->device].done, done);
    s->done = later(s->done, done);
}

static Device *
find_device(const Program *p, const State *s, int32_t index)
{
    Py_ssize_t low = 0, high = p->streams;
    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if (s->devices[middle].index < index) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    return low < p->streams && s->devices[low].index == index ? &s->devices[low] : NULL;
}

static int64_t
launch(const Program *p, State *s, Stream *stream, Py_ssize_t op, Py_ssize_t last, int64_t begin, int64_t done)
{
    if (stream->full) {
        done = later(done, stream->outstanding[stream->next]);
    }
    const int64_t follows = stream->ready;
    int64_t finished = 0;
    for (; op < last; op++) {
        Stream *on = &s->streams[p->op_stream[op]];
        const int32_t engine = p->op_engine[op], after = p->op_after[op];
        int64_t time = later(begin, plus(done, p->op_latency[op]));
        time = later(time, plus(later(follows, on->ready), p->op_gap[op]));
        time = later(time, on->held);
        if (after >= 0) {
            time = later(time, plus(s->op_end[after], p->op_lag[op]));
        }
        if (engine >= 0) {
            time = later(time, s->free[engine]);
        }
        s->op_start[op] = time;
        time = plus(time, p->op_duration[op]);
        s->op_end[op] = on->ready = time;
        if (engine >= 0) {
            s->free[engine] = time;
        }
        finished = later(finished, time);
        keep_done(s, on);
    }
    stream->ready = later(stream->ready, finished);
    keep_done(s, stream);
    stream->outstanding[stream->next++] = stream->ready;
    if (stream->next == stream->room) {
        stream->next = 0;
        stream->full = 1;
    }
    return done;
}

static void
run(const Program *p, State *s)
{
    Py_ssize_t op = 0;
    for (Py_ssize_t i = 0; i < p->length; i++) {
        const int code = p->code[i];
        const int32_t number = p->stream[i], target = p->target[i];
        const int64_t latency = p->latency[i];
        Stream *const stream = &s->streams[code == CALL || code >= SYNC_DEVICE ? 0 : number];
        const int64_t begin = plus(s->clock[p->thread[i]], p->work[i]);
        int64_t done = plus(begin, p->call[i]);
        switch (code) {
        case LAUNCH:
            done = launch(p, s, stream, op, (Py_ssize_t)p->ends[i], begin, done);
            op = (Py_ssize_t)p->ends[i];
            break;
        case RECORD:
            s->marked[i] = later(stream->ready, stream->held);
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
                const Device *device = find_device(p, s, number);
                done = device ? later(done, plus(device->done, latency)) : done;
            }
            break;
        case SYNC_EVENT:
            done = later(done, plus(s->marked[target], latency));
            break;
        case JOIN:
            done = later(done, s->end[target]);
            break;
        }
        s->start[i] = begin;
        s->end[i] = s->clock[p->thread[i]] = done;
    }
}

static int
by_index(const void *a, const void *b)
{
    const int32_t left = ((const Device *)a)->index, right = ((const Device *)b)->index;
    return (left > right) - (left < right);
}

static void
number_devices(const Program *p, State *s)
{
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->devices[i].index = p->device_of_stream[i];
    }
    if (p->streams) {
        qsort(s->devices, (size_t)p->streams, sizeof(Device), by_index);
    }
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->streams[i].device = find_device(p, s, p->device_of_stream[i]) - s->devices;
    }
}

static void
lay_out_rings(const Program *p, State *s)
{
    int64_t *ring = s->rings;
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->streams[i].outstanding = ring;
        ring += s->streams[i].room;
    }
}

/* No row of length 0, whose address may be anything. */
static void *
zeros(Py_ssize_t count, size_t size)
{
    void *rows = PyMem_Calloc(count ? (size_t)count : 1, size);
    if (!rows) {
        PyErr_NoMemory();
    }
    return rows;
}

static PyObject *
times(Py_ssize_t count, int64_t **rows)
{
    if (count > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(int64_t)) {
        return PyErr_NoMemory();
    }
    /* Not at once of that size: where there is no memory for it, CPython 3.11 reads what it has not yet set. */
    PyObject *array = PyByteArray_FromStringAndSize(NULL, 0);
    if (!array || PyByteArray_Resize(array, count * (Py_ssize_t)sizeof(int64_t)) < 0) {
        Py_XDECREF(array);
        return NULL;
    }
    *rows = (int64_t *)PyByteArray_AsString(array);
    return array;
}

/* (start, end, op_start, op_end), each the bytes of int64 */
static PyObject *
replay_checked(const Program *p)
{
    PyObject *result = NULL, *arrays[4] = {NULL, NULL, NULL, NULL};
    State s = {0};
    Fault fault = {0};
    int refused;
    if (!(arrays[0] = times(p->length, &s.start)) || !(arrays[1] = times(p->length, &s.end)) ||
        !(arrays[2] = times(p->ops, &s.op_start)) || !(arrays[3] = times(p->ops, &s.op_end)) ||
        !(s.clock = zeros((Py_ssize_t)p->threads, sizeof(int64_t))) ||
        !(s.free = zeros((Py_ssize_t)p->engines, sizeof(int64_t))) ||
        !(s.marked = zeros(p->length, sizeof(int64_t))) || !(s.streams = zeros(p->streams, sizeof(Stream))) ||
        !(s.devices = zeros(p->streams, sizeof(Device)))) {
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    number_devices(p, &s);
    refused = check(p, &s, &fault);
    Py_END_ALLOW_THREADS
    if (refused) {
        PyObject *sentence = PyUnicode_FromFormat(fault.sentence, fault.row, fault.value, fault.count);
        if (sentence) {
            PyErr_SetObject(PyExc_ValueError, sentence);
            Py_DECREF(sentence);
        }
        goto done;
    }
    Py_ssize_t launches = 0;
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        launches += s.streams[i].room;
    }
    if (!(s.rings = zeros(launches, sizeof(int64_t)))) {
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    lay_out_rings(p, &s);
    run(p, &s);
    Py_END_ALLOW_THREADS
    result = PyTuple_Pack(4, arrays[0], arrays[1], arrays[2], arrays[3]);
done:
    PyMem_Free(s.clock);
    PyMem_Free(s.free);
    PyMem_Free(s.marked);
    PyMem_Free(s.rings);
    PyMem_Free(s.streams);
    PyMem_Free(s.devices);
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(arrays[i]);
    }
    return result;
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
take_column(PyObject *object, int which, Py_buffer *view)
{
    const int bytes = columns[which].bytes;
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
    PyErr_Format(PyExc_ValueError, "%s must be one contiguous column of int%d", columns[which].name, 8 * bytes);
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

PyDoc_STRVAR(replay_doc, "replay(columns …, device_of_stream, threads, engines, capacity)\n--\n\n"
                         "(start, end, op_start, op_end) of a program, each the bytes of a column of int64.\n\n"
                         "Raises ValueError where something is not as a program has it.");

static PyObject *
replay(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != ARGUMENTS) {
        return PyErr_Format(PyExc_TypeError, "replay takes %d arguments, not %zd", (int)ARGUMENTS, count);
    }
    PyObject *result = NULL;
    Py_buffer views[COLUMNS];
    void *copies[COLUMNS] = {NULL};
    const void *rows[COLUMNS];
    Program p = {0};
    int taken = 0;
    for (; taken < COLUMNS; taken++) {
        if (take_column(arguments[taken], taken, &views[taken]) < 0) {
            goto done;
        }
    }
    for (int i = 0; i < COLUMNS; i++) {
        const int like = columns[i].like;
        if (views[i].shape[0] != views[like].shape[0]) {
            PyErr_Format(PyExc_ValueError, "%s has %zd rows, and %s has %zd", columns[i].name, views[i].shape[0],
                         columns[like].name, views[like].shape[0]);
            goto done;
        }
    }
    if (take_count(arguments[THREADS], "threads", 0, MOST_THREADS, &p.threads) < 0 ||
        take_count(arguments[ENGINES], "engines", 0, MOST_THREADS, &p.engines) < 0 ||
        take_count(arguments[CAPACITY], "capacity", 1, MOST_CAPACITY, &p.capacity) < 0) {
        goto done;
    }
    for (int i = 0; i < COLUMNS; i++) {
        rows[i] = views[i].buf;
        if (columns[i].indices) {
            if (!(copies[i] = PyMem_Malloc(views[i].len ? (size_t)views[i].len : 1))) {
                PyErr_NoMemory();
                goto done;
            }
            if (views[i].len) {
                memcpy(copies[i], views[i].buf, (size_t)views[i].len);
            }
            rows[i] = copies[i];
        }
    }
    p.length = views[CODE].shape[0];
    p.ops = views[OP_STREAM].shape[0];
    p.streams = views[DEVICE_OF_STREAM].shape[0];
    p.code = rows[CODE];
    p.thread = rows[THREAD];
    p.stream = rows[STREAM];
    p.target = rows[TARGET];
    p.work = rows[WORK];
    p.call = rows[CALLS];
    p.latency = rows[LATENCY];
    p.ends = rows[OPS];
    p.op_stream = rows[OP_STREAM];
    p.op_engine = rows[OP_ENGINE];
    p.op_after = rows[OP_AFTER];
    p.op_duration = rows[OP_DURATION];
    p.op_latency = rows[OP_LATENCY];
    p.op_gap = rows[OP_GAP];
    p.op_lag = rows[OP_LAG];
    p.device_of_stream = rows[DEVICE_OF_STREAM];
    result = replay_checked(&p);
done:
    for (int i = 0; i < COLUMNS; i++) {
        PyMem_Free(copies[i]);
    }
    while (taken) {
        PyBuffer_Release(&views[--taken]);
    }
    return result;
}

static PyMethodDef methods[] = {
    {"replay", (PyCFunction)(void (*)(void))replay, METH_FASTCALL, replay_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_engine", .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__engine(void)
{
    return PyModuleDef_Init(&module);
}
