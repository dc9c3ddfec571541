/* Loops over the rows of columns. numpy would need several passes for each, since a row's result depends on those of
   earlier rows, or a sort. `ancestry.py`, `grouping.py` and `read/nest.py` say what each does, and have its twin. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 4, SPARSE = 4, SMALL = 1 << 14 };

/* The columns that a function got. */
typedef struct {
    Py_buffer view[MOST];
    void *data[MOST];   /* of the view, or a copy without gaps */
    int count;
    Py_ssize_t rows;
} Columns;

static void
give_back(Columns *held)
{
    while (held->count) {
        Py_buffer *view = &held->view[--held->count];
        if (held->data[held->count] != view->buf) {
            PyMem_Free(held->data[held->count]);
        }
        PyBuffer_Release(view);
    }
}

static int
is_column(const Py_buffer *view, int bytes)
{
    const char *format = view->format ? view->format : "";
    format += *format == '@' || *format == '='; /* a field of a record has "=" */
    const int is_integer = *format && !format[1] && strchr("ilq", *format);
    return view->ndim == 1 && is_integer && (bytes ? view->itemsize == bytes : view->itemsize == 4 || view->itemsize == 8);
}

static int
has_gaps(const Py_buffer *view)
{
    return !PyBuffer_IsContiguous(view, 'C') || (uintptr_t)view->buf % (uintptr_t)view->itemsize;
}

/* Makes a copy of a column whose rows do not follow one another, such as a field of a record. */
static void *
without_gaps(const Py_buffer *view)
{
    void *copy = PyMem_Malloc((size_t)view->len + 1);
    if (!copy) {
        PyErr_NoMemory();
    }
    else if (PyBuffer_ToContiguous(copy, view, view->len, 'C') < 0) {
        PyMem_Free(copy);
        copy = NULL;
    }
    return copy;
}

/* Takes columns of one length. `bytes` has the bytes of each column's integers (0: 4 or 8); `outputs` of them, the last,
   are written to, and have no gaps. */
static int
take(PyObject *const *arguments, Py_ssize_t given, const char *bytes, int outputs, Columns *held)
{
    const int count = (int)strlen(bytes);
    if (given != count) {
        PyErr_Format(PyExc_TypeError, "%zd arguments, not %d", given, count);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        Py_buffer *view = &held->view[i];
        const int is_output = i >= count - outputs;
        const int flags = PyBUF_FORMAT | (is_output ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_STRIDES);
        if (PyObject_GetBuffer(arguments[i], view, flags) < 0) {
            return -1;
        }
        held->data[held->count++] = view->buf;
        if (!is_column(view, bytes[i] - '0') || (i && view->shape[0] != held->rows) || (is_output && has_gaps(view))) {
            PyErr_Format(PyExc_ValueError, "argument %d is not such a column", i);
            return -1;
        }
        if (has_gaps(view) && !(held->data[i] = without_gaps(view))) {
            return -1;
        }
        held->rows = view->shape[0];
    }
    return 0;
}

PyDoc_STRVAR(settle_doc, "settle(pointer, result)\n--\n\n"
                         "See `ancestry._settle`. False if a row points to a later one: `result` is then undefined.");

static PyObject *
settle(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    Columns held = {0};
    if (take(arguments, given, "44", 1, &held) < 0) {
        give_back(&held);
        return NULL;
    }
    const int32_t *pointer = held.data[0];
    int32_t *result = held.data[1];
    Py_ssize_t row = 0;
    for (; row < held.rows && pointer[row] <= row; row++) {
        const int32_t to = pointer[row];
        result[row] = to < 0 ? -1 : to == row ? to : result[to];
    }
    const int all = row == held.rows;
    give_back(&held);
    return PyBool_FromLong(all);
}

PyDoc_STRVAR(enclosing_doc, "enclosing(thread, start, end, parent)\n--\n\nSee `ancestry.enclosing`.");

static PyObject *
enclosing(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    Columns held = {0};
    if (take(arguments, given, "4884", 1, &held) < 0) {
        give_back(&held);
        return NULL;
    }
    const int32_t *thread = held.data[0];
    const int64_t *start = held.data[1], *end = held.data[2];
    int32_t *parent = held.data[3];
    int64_t *ends = PyMem_Malloc((size_t)held.rows * sizeof(int64_t) + 1); /* as clipped */
    if (!ends) {
        give_back(&held);
        return PyErr_NoMemory();
    }
    for (int32_t row = 0; row < (int32_t)held.rows; row++) {
        int32_t outer = row && thread[row] == thread[row - 1] ? row - 1 : -1;
        while (outer >= 0 && ends[outer] <= start[row] && start[outer] < start[row]) {
            outer = parent[outer];
        }
        parent[row] = outer;
        const int64_t ended = outer >= 0 && ends[outer] < end[row] ? ends[outer] : end[row];
        ends[row] = ended > start[row] ? ended : start[row];
    }
    PyMem_Free(ends);
    give_back(&held);
    return Py_NewRef(Py_None);
}

/* The times at which another row begins to own the time. */
typedef struct {
    int64_t *time, *owner;
    Py_ssize_t count;
} Changes;

static void
change(Changes *changes, int64_t time, int64_t owner)
{
    changes->count -= changes->count && changes->time[changes->count - 1] == time; /* the last one at a time counts */
    changes->time[changes->count] = time;
    changes->owner[changes->count++] = owner;
}

PyDoc_STRVAR(open_at_doc, "open_at(rows, start, end, time, owner)\n--\n\n"
                          "See `ancestry.open_at`: how many times and owners there are. `time` and `owner` have twice "
                          "as many rows as `rows`.");

static PyObject *
open_at(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    Columns held = {0}, out = {0};
    PyObject *result = NULL;
    Py_ssize_t *open = NULL; /* by start; some may have ended */
    if (take(arguments, given - 2, "888", 0, &held) < 0 || take(arguments + 3, given - 3, "88", 2, &out) < 0) {
        goto done;
    }
    if (out.rows < 2 * held.rows) {
        PyErr_SetString(PyExc_ValueError, "there is no room for the result");
        goto done;
    }
    open = PyMem_Malloc((size_t)held.rows * sizeof(Py_ssize_t) + 1);
    if (!open) {
        PyErr_NoMemory();
        goto done;
    }
    const int64_t *row = held.data[0], *start = held.data[1], *end = held.data[2];
    Changes changes = {out.data[0], out.data[1], 0};
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i <= held.rows; i++) {
        while (count && (i == held.rows || end[open[count - 1]] <= start[i])) {
            const int64_t ended = end[open[--count]];
            while (count && end[open[count - 1]] <= ended) {
                count--;
            }
            change(&changes, ended, count ? row[open[count - 1]] : -1);
        }
        if (i < held.rows) {
            open[count++] = i;
            change(&changes, start[i], row[i]);
        }
    }
    result = PyLong_FromSsize_t(changes.count);
done:
    PyMem_Free(open);
    give_back(&held);
    give_back(&out);
    return result;
}

/* The first column that a function got, whose integers have 4 or 8 bytes. */
static int64_t
at(const Columns *held, Py_ssize_t row)
{
    return held->view[0].itemsize == 4 ? ((const int32_t *)held->data[0])[row] : ((const int64_t *)held->data[0])[row];
}

/* The values of a column that lie close together. */
typedef struct {
    int64_t low;
    Py_ssize_t span;    /* from the lowest to the highest; 0 if the column has none, or if they lie far apart */
    Py_ssize_t *number; /* by value: how many rows have it, then its number among the distinct values */
    Py_ssize_t found;   /* how many are distinct */
} Values;

/* Counts the rows of each value of the first column. Returns -1 without memory. */
static int
count_values(const Columns *column, Values *values)
{
    const Py_ssize_t rows = column->rows;
    int64_t high = rows ? at(column, 0) : 0;
    values->low = high;
    for (Py_ssize_t row = 0; row < rows; row++) {
        const int64_t value = at(column, row);
        values->low = value < values->low ? value : values->low;
        high = value > high ? value : high;
    }
    const uint64_t span = (uint64_t)high - (uint64_t)values->low;
    if (!rows || span > (uint64_t)SPARSE * (uint64_t)rows + SMALL) {
        return 0;
    }
    values->span = (Py_ssize_t)span + 1;
    values->number = PyMem_Calloc((size_t)values->span, sizeof(Py_ssize_t));
    if (!values->number) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t row = 0; row < rows; row++) {
        values->found += !values->number[at(column, row) - values->low]++;
    }
    return 0;
}

/* Takes a column of values and one for the result, and counts the rows of each value. Returns -1 if it cannot, or if the
   values lie far apart: `result` is then None. */
static int
take_values(PyObject *const *arguments, Py_ssize_t given, Columns *held, Values *values, PyObject **result)
{
    if (take(arguments, given, "08", 1, held) < 0 || count_values(held, values) < 0) {
        return -1;
    }
    if (!values->span) {
        *result = Py_NewRef(Py_None);
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(distinct_doc, "distinct(values, index)\n--\n\n"
                           "See `grouping.distinct`: the distinct values, as bytes of int64. None if they lie far apart.");

static PyObject *
distinct(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    Columns held = {0};
    Values values = {0};
    PyObject *result = NULL;
    if (take_values(arguments, given, &held, &values, &result) < 0) {
        goto done;
    }
    result = PyBytes_FromStringAndSize(NULL, values.found * (Py_ssize_t)sizeof(int64_t));
    if (!result) {
        goto done;
    }
    int64_t *found = (int64_t *)PyBytes_AsString(result), *index = held.data[1];
    Py_ssize_t number = 0;
    for (Py_ssize_t value = 0; value < values.span; value++) {
        if (values.number[value]) {
            found[number] = values.low + value;
            values.number[value] = number++;
        }
    }
    for (Py_ssize_t row = 0; row < held.rows; row++) {
        index[row] = values.number[at(&held, row) - values.low];
    }
done:
    PyMem_Free(values.number);
    give_back(&held);
    return result;
}

PyDoc_STRVAR(grouped_doc, "grouped(values, order)\n--\n\n"
                          "See `grouping.groups`: a list of (value, first, last) of the rows in `order` that have the value, "
                          "which is their stable order by value. None if the values lie far apart.");

static PyObject *
grouped(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    Columns held = {0};
    Values values = {0};
    PyObject *result = NULL;
    if (take_values(arguments, given, &held, &values, &result) < 0) {
        goto done;
    }
    result = PyList_New(values.found);
    Py_ssize_t first = 0, number = 0;
    for (Py_ssize_t value = 0; result && value < values.span; value++) {
        const Py_ssize_t count = values.number[value];
        values.number[value] = first;
        if (!count) {
            continue;
        }
        PyObject *group = Py_BuildValue("(Lnn)", (long long)(values.low + value), first, first + count);
        if (!group || PyList_SetItem(result, number++, group) < 0) {
            Py_CLEAR(result);
        }
        first += count;
    }
    int64_t *order = held.data[1];
    for (Py_ssize_t row = 0; result && row < held.rows; row++) {
        order[values.number[at(&held, row) - values.low]++] = row;
    }
done:
    PyMem_Free(values.number);
    give_back(&held);
    return result;
}

static PyMethodDef methods[] = {
    {"settle", (PyCFunction)(void (*)(void))settle, METH_FASTCALL, settle_doc},
    {"enclosing", (PyCFunction)(void (*)(void))enclosing, METH_FASTCALL, enclosing_doc},
    {"open_at", (PyCFunction)(void (*)(void))open_at, METH_FASTCALL, open_at_doc},
    {"distinct", (PyCFunction)(void (*)(void))distinct, METH_FASTCALL, distinct_doc},
    {"grouped", (PyCFunction)(void (*)(void))grouped, METH_FASTCALL, grouped_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_rows", .m_methods = methods};

PyMODINIT_FUNC PyInit__rows(void); /* Python finds it by its name */

PyMODINIT_FUNC
PyInit__rows(void)
{
    return PyModuleDef_Init(&module);
}
