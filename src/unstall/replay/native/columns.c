/* What Python passes to the engine, and what it gets back. */

#include "engine.h"

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
    {"ops.data", 4, 1, OP_STREAM},              {"ops.after", 4, 1, OP_STREAM},
    {"ops.duration", 8, 0, OP_STREAM},          {"ops.latency", 8, 0, OP_STREAM},
    {"ops.gap", 8, 0, OP_STREAM},               {"ops.lag", 8, 0, OP_STREAM},
    {"ops.uncached", 8, 0, OP_STREAM},          {"ops.again", 8, 0, OP_STREAM},
    {"device_of_stream", 4, 1, DEVICE_OF_STREAM},
};

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

void
raise_fault(const Fault *fault)
{
    PyObject *sentence = PyUnicode_FromFormat(fault->sentence, fault->row, fault->value, fault->count);
    if (sentence) {
        PyErr_SetObject(PyExc_ValueError, sentence);
        Py_DECREF(sentence);
    }
}

/* Returns room for the times of a part: (start, end, op_start, op_end), each as bytes of int64. */
PyObject *
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
int
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

int
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

int
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

void
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
int
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
    p->op_data = rows[OP_DATA];
    p->op_after = rows[OP_AFTER];
    p->op_duration = rows[OP_DURATION];
    p->op_latency = rows[OP_LATENCY];
    p->op_gap = rows[OP_GAP];
    p->op_lag = rows[OP_LAG];
    p->op_uncached = rows[OP_UNCACHED];
    p->op_again = rows[OP_AGAIN];
    p->device_of_stream = rows[DEVICE_OF_STREAM];
    return 0;
}
