/* The module `_blame`: what Python asks of _marks.c, _follow.c and _agent.c. */

#include "_agent.h"
#include "_driver.h"
#include "_follow.h"
#include "_marks.h"

#include "../lines/_clock.h"

#include <errno.h>
#include <pthread.h>

static void
forked(void)
{
    marks_forked();
    frames_forked();
    driver_forked();
    agent_forked();
    follow_forked();
}

static void
watch_forks(void)
{
    static int watched; /* under the GIL */
    if (!watched) {
        pthread_atfork(NULL, NULL, forked);
        watched = 1;
    }
}

static PyObject *test_write; /* a test's device, which writes to the file */

static int
write_in_test(uint64_t stream, uint32_t slot, uint32_t value)
{
    PyObject *result = PyObject_CallFunction(test_write, "KII", (unsigned long long)stream, slot, value);
    int code = result ? (int)PyLong_AsLong(result) : -1;
    Py_XDECREF(result);
    return code;
}

static uint32_t
written_in_test(uint32_t slot)
{
    uint64_t bytes;
    return ((const volatile uint32_t *)marks_slots(&bytes))[slot];
}

PyDoc_STRVAR(open_doc,
"open(path, pinned, files, write=None) -> None\n\nNote work into this new file. `pinned`: lines of FILE:LINE:VISIT after\n"
"whose work the stream is waited for. `files`: pairs of a part of a path and whose the file is, see _marks.h.\n"
"`write(stream, slot, value)` takes the device's place in tests. Raises OSError.");

enum { MOST_RULES = 256 };

/* Returns how many rules there are, or -1 with an exception. */
static int
read_rules(PyObject *files, FileRule *rules)
{
    Py_ssize_t count = PyTuple_Size(files);
    if (count > MOST_RULES) {
        PyErr_SetString(PyExc_ValueError, "too many rules for files");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyArg_ParseTuple(PyTuple_GetItem(files, i), "sI", &rules[i].part, &rules[i].whose)) {
            return -1;
        }
    }
    return (int)count;
}

/* Gives the path back. Returns -1 with an OSError if there is an error, an errno. */
static int
failed_at(PyObject *path, int error)
{
    if (error) {
        errno = error;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AsString(path));
    }
    Py_DECREF(path);
    return error ? -1 : 0;
}

static PyObject *
open_(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *path = NULL, *files, *write = Py_None;
    const char *pinned;
    static FileRule rules[MOST_RULES]; /* under the GIL */
    if (!PyArg_ParseTuple(arguments, "O&sO!|O", PyUnicode_FSConverter, &path, &pinned, &PyTuple_Type, &files, &write)) {
        return NULL;
    }
    int count = read_rules(files, rules);
    if (count < 0) {
        Py_DECREF(path);
        return NULL;
    }
    Driver driver = {write == Py_None ? driver_write : write_in_test, driver_wait,
                     write == Py_None ? driver_written : written_in_test};
    Py_XDECREF(test_write);
    test_write = Py_NewRef(write);
    watch_forks();
    frames_on_new = marks_describe;
    int error = marks_set_files(rules, count) ? ENOMEM : marks_open(PyBytes_AsString(path), &driver, pinned);
    if (failed_at(path, error)) {
        return NULL;
    }
    driver_open();
    follow_open();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(budget_doc,
"budget(share, first, cost_ns=0) -> None\n\nFor tests and benchmarks: put the first marks at once, then so many that they\n"
"take this share of the time. `cost_ns`: what a mark takes; 0 to measure it.");

static PyObject *
budget(PyObject *self, PyObject *arguments)
{
    (void)self;
    double share;
    unsigned first, cost = 0;
    if (!PyArg_ParseTuple(arguments, "dI|I", &share, &first, &cost)) {
        return NULL;
    }
    marks_budget((uint32_t)(share * 1e6), first, cost);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(when_failed_doc,
"when_failed(act) -> None\n\nCall `act()` once, in the call of the driver that returns the first error, by its thread.");

static PyObject *
when_failed(PyObject *self, PyObject *act)
{
    (void)self;
    follow_when_failed(act == Py_None ? NULL : act);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(follow_doc,
"follow() -> None\n\nFollow the driver's calls from now on. Raises OSError if that is not possible.");

static PyObject *
follow(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (follow_begin()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(close_doc,
"close() -> None\n\nFollow nothing more, and leave the process as it was. Slots that graphs write to stay pinned.");

static PyObject *
close_(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    Py_BEGIN_ALLOW_THREADS
    follow_end();
    agent_hold();
    driver_close();
    agent_release();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(look_doc,
"look() -> None\n\nAsk the driver whether a context was ended by an error that no followed call has returned.");

static PyObject *
look(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    Py_BEGIN_ALLOW_THREADS
    follow_look();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(agent_doc,
"agent(path, stacks, signal) -> None\n\nStart the thread that answers from which this process is asked through the new file\n"
"at `path`. `stacks`: the file descriptor to which the handler of `signal` writes stacks. Raises OSError.");

static PyObject *
agent(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *path = NULL;
    int stacks, signal;
    if (!PyArg_ParseTuple(arguments, "O&ii", PyUnicode_FSConverter, &path, &stacks, &signal)) {
        return NULL;
    }
    watch_forks();
    int error = agent_start(PyBytes_AsString(path), stacks, signal, follow_query, driver_keep_slots);
    if (failed_at(path, error)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(end_agent_doc, "end_agent() -> None\n\nEnd that thread.");

static PyObject *
end_agent(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    Py_BEGIN_ALLOW_THREADS
    agent_end();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(work_doc,
"work(kind, stream, symbol, event=0, capture=0, thread=0) -> bool\n\nFor tests: note work as if the driver was called\n"
"from this line. Returns whether the stream would be waited for.");

static PyObject *
work(PyObject *self, PyObject *arguments)
{
    (void)self;
    unsigned kind, thread = 0;
    unsigned long long stream, event = 0, capture = 0;
    const char *symbol;
    if (!PyArg_ParseTuple(arguments, "IKz|KKI", &kind, &stream, &symbol, &event, &capture, &thread)) {
        return NULL;
    }
    Work work = {.kind = kind, .context = 1, .stream = stream, .symbol = symbol, .event = event, .capture = capture,
                 .stack = frames_here_all(), .thread = thread, .time = now()};
    marks_unloaded(); /* the name lives as long as this call */
    int waits = marks_work(&work);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(waits);
}

PyDoc_STRVAR(error_doc, "error(code, call) -> None\n\nFor tests: note an error as if the driver had returned it here.");

static PyObject *
error(PyObject *self, PyObject *arguments)
{
    (void)self;
    int code;
    const char *call;
    if (!PyArg_ParseTuple(arguments, "is", &code, &call)) {
        return NULL;
    }
    marks_error(code, call, frames_here_all(), follow_thread(), now());
    Py_RETURN_NONE;
}

PyDoc_STRVAR(end_capture_doc, "end_capture(stream, capture) -> None\n\nFor tests: note the end of a capture.");

static PyObject *
end_capture(PyObject *self, PyObject *arguments)
{
    (void)self;
    unsigned long long stream, capture;
    if (!PyArg_ParseTuple(arguments, "KK", &stream, &capture)) {
        return NULL;
    }
    marks_end_capture(1, stream, capture);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(backward_doc,
"backward() -> int\n\nTake this stack for work of threads without Python frames. Returns the one that was taken before.");

static PyObject *
backward(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    return PyLong_FromLong(follow_backward(frames_here_all()));
}

PyDoc_STRVAR(backward_over_doc, "backward_over(before) -> None\n\nTake that one again, which backward() returned.");

static PyObject *
backward_over(PyObject *self, PyObject *before)
{
    (void)self;
    long number = PyLong_AsLong(before);
    if (PyErr_Occurred()) {
        return NULL;
    }
    follow_backward((int32_t)number);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(supported_doc, "frames_supported() -> bool\n\nWhether stacks can be read in this version of Python.");

static PyObject *
supported(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    return PyBool_FromLong(frames_supported());
}

static PyMethodDef methods[] = {
    {"open", open_, METH_VARARGS, open_doc},
    {"budget", budget, METH_VARARGS, budget_doc},
    {"when_failed", when_failed, METH_O, when_failed_doc},
    {"follow", follow, METH_NOARGS, follow_doc},
    {"look", look, METH_NOARGS, look_doc},
    {"close", close_, METH_NOARGS, close_doc},
    {"agent", agent, METH_VARARGS, agent_doc},
    {"end_agent", end_agent, METH_NOARGS, end_agent_doc},
    {"backward", backward, METH_NOARGS, backward_doc},
    {"backward_over", backward_over, METH_O, backward_over_doc},
    {"frames_supported", supported, METH_NOARGS, supported_doc},
    {"work", work, METH_VARARGS, work_doc},
    {"error", error, METH_VARARGS, error_doc},
    {"end_capture", end_capture, METH_VARARGS, end_capture_doc},
    {NULL, NULL, 0, NULL},
};

static int
begin(PyObject *module)
{
    (void)module;
    return follow_import();
}

static PyModuleDef_Slot slots_of_module[] = {{Py_mod_exec, begin}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_blame", .m_methods = methods, .m_slots = slots_of_module,
};

PyMODINIT_FUNC
PyInit__blame(void)
{
    return PyModuleDef_Init(&module);
}
