/* The module `unstall.replay._engine`. */

#include "engine.h"

/* Feeds a part to `state`. If it is NULL, feeds a new state, and the last argument is its capacity. */
static PyObject *
feed_arguments(PyObject *const *arguments, State *state)
{
    PyObject *result = NULL;
    Columns held = {0};
    Program p = {0};
    State fresh = {.is_whole = 1}, *s = state ? state : &fresh;
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

PyDoc_STRVAR(replay_job_doc,
             "replay_job(programs, first, program, op, transfer, offsets)\n--\n\n"
             "The times of programs that wait for each other at joint operations, as those of `replay`, and the numbers of "
             "the operations that were left out, since programs would wait there in a circle.\n\n"
             "`programs` is a tuple of tuples, the arguments of `replay`; the others are columns of int64.\n\n"
             "Raises ValueError where something is not as a program has it.");

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

PyMODINIT_FUNC PyInit__engine(void); /* Python finds it by its name */

PyMODINIT_FUNC
PyInit__engine(void)
{
    return PyModuleDef_Init(&module);
}
