/* Guards: facts about a program's objects that must hold before a replay. Each call checks hundreds of dicts and
   tensors. The reference implementation in Python, guards.py, defines the meaning of each fact.

   A check may run the program's own code, or let another thread run. So no borrowed reference is kept across a check,
   and facts own references to their containers, keys and names. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(Py_GIL_DISABLED) || defined(PYPY_VERSION)
#error "this needs CPython with its GIL"
#endif

#include <stdint.h>
#include <stdlib.h>

/* From DLPack 1.3, https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h. It gives a tensor's address
   without a call into Python. */
enum { DLPACK_MAJOR = 1, COMPLEX = 5 };

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Layout;

typedef int (*LayoutOf)(void *tensor, Layout *out);

typedef struct Exchange {
    uint32_t major, minor;
    const struct Exchange *older;
    void *allocate, *from_tensor, *to_tensor;
    LayoutOf layout_of;
} Exchange;

typedef enum { DICT, LIST, ITEM, SIZE, ATTRIBUTE, COUNT, LAYOUT, READING } Kind;

typedef struct {
    Kind kind;
    PyObject *of;    /* a container, another object, or a tensor */
    PyObject *key;   /* or an attribute's name, or the function that reads a tensor */
    PyObject *value; /* compared by identity; for READING by equality */
    Py_ssize_t size; /* or an index in a list */
    Layout *layout;  /* its shape and strides follow it in memory */
} Fact;

typedef struct {
    PyObject_HEAD
    Fact *facts;
    Py_ssize_t count, items; /* items come first, in the order given */
    LayoutOf layout_of;      /* NULL: tensors are read through Python */
} Guards;

static LayoutOf
layout_of_capsule(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
        return NULL;
    }
    const Exchange *exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    while (exchange && exchange->major != DLPACK_MAJOR) {
        exchange = exchange->older;
    }
    return exchange ? exchange->layout_of : NULL;
}

/* Returns a copy that owns its shape and strides, or NULL with an exception. */
static Layout *
kept(const Layout *seen)
{
    Layout *copy = malloc(sizeof(Layout) + 2 * (size_t)seen->ndim * sizeof(int64_t));
    if (!copy) {
        return (Layout *)PyErr_NoMemory();
    }
    *copy = *seen;
    copy->shape = (int64_t *)(copy + 1);
    copy->strides = copy->shape + seen->ndim;
    for (int32_t dim = 0; dim < seen->ndim; dim++) {
        copy->shape[dim] = seen->shape[dim];
        copy->strides[dim] = seen->strides[dim];
    }
    return copy;
}

static int
same_layout(const Layout *one, const Layout *other)
{
    if (one->data != other->data || one->ndim != other->ndim || one->code != other->code || one->bits != other->bits ||
        one->lanes != other->lanes || one->device_type != other->device_type || one->device_id != other->device_id ||
        one->byte_offset != other->byte_offset) {
        return 0;
    }
    for (int32_t dim = 0; dim < one->ndim; dim++) {
        if (one->shape[dim] != other->shape[dim] || one->strides[dim] != other->strides[dim]) {
            return 0;
        }
    }
    return 1;
}

/* Checks return 1 if a fact holds, 0 if it does not, and -1 with an exception. */

static int
gone(void)
{
    if (PyErr_ExceptionMatches(PyExc_KeyError) || PyErr_ExceptionMatches(PyExc_IndexError)) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

static int
is_value(const Fact *fact, PyObject *found)
{
    if (!found) {
        return -1;
    }
    const int same = found == fact->value;
    Py_DECREF(found);
    return same;
}

static int
counts(const Fact *fact, PyObject *found)
{
    if (!found) {
        return -1;
    }
    const Py_ssize_t size = found == Py_None ? 0 : PyObject_Size(found);
    Py_DECREF(found);
    return size < 0 ? -1 : size == fact->size;
}

/* Returns 0 if torch cannot give the tensor's layout: the tensor has become one of another kind. */
static int
unread(void)
{
    if (PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

static int
reads(const Fact *fact)
{
    PyObject *now = PyObject_CallFunctionObjArgs(fact->key, fact->of, NULL);
    if (!now) {
        return unread();
    }
    const int same = PyObject_RichCompareBool(now, fact->value, Py_EQ);
    Py_DECREF(now);
    return same;
}

static int
fact_holds(const Guards *self, const Fact *fact)
{
    PyObject *found;
    switch (fact->kind) {
    case DICT:
        found = PyDict_GetItemWithError(fact->of, fact->key); /* borrowed; only its address is used */
        if (!found) {
            return PyErr_Occurred() ? gone() : 0;
        }
        return found == fact->value;
    case LIST:
        return fact->size < PyList_Size(fact->of) && PyList_GetItem(fact->of, fact->size) == fact->value;
    case ITEM:
        found = PyObject_GetItem(fact->of, fact->key);
        return found ? is_value(fact, found) : gone();
    case SIZE: {
        const Py_ssize_t size = PyObject_Size(fact->of);
        return size < 0 ? -1 : size == fact->size;
    }
    case ATTRIBUTE:
        return is_value(fact, PyObject_GetAttr(fact->of, fact->key));
    case COUNT:
        return counts(fact, PyObject_GetAttr(fact->of, fact->key));
    case LAYOUT: {
        Layout now;
        return self->layout_of(fact->of, &now) < 0 ? unread() : same_layout(&now, fact->layout);
    }
    default:
        return reads(fact);
    }
}

PyDoc_STRVAR(hold_doc, "hold()\n--\n\nWhether all facts hold. Raises what the program's own code raises, except a "
                       "KeyError or an IndexError of an item: it is gone.");

static PyObject *
hold(Guards *self, PyObject *nothing)
{
    (void)nothing;
    for (Py_ssize_t place = 0; place < self->count; place++) {
        const int same = fact_holds(self, &self->facts[place]);
        if (same <= 0) {
            return same < 0 ? NULL : Py_NewRef(Py_False);
        }
    }
    return Py_NewRef(Py_True);
}

PyDoc_STRVAR(expect_doc, "expect(place, value)\n--\n\nAnother object in an item from now on.");

static PyObject *
expect(Guards *self, PyObject *arguments)
{
    Py_ssize_t place;
    PyObject *value;
    if (!PyArg_ParseTuple(arguments, "nO:expect", &place, &value)) {
        return NULL;
    }
    if (place < 0 || place >= self->items) {
        return PyErr_Format(PyExc_IndexError, "item %zd is none of %zd", place, self->items);
    }
    PyObject *before = self->facts[place].value;
    self->facts[place].value = Py_NewRef(value);
    Py_DECREF(before);
    Py_RETURN_NONE;
}

/* Constructors: each adds one fact and returns 0, or -1 with an exception. */

static Fact *
added(Guards *self, Kind kind, PyObject *of, PyObject *key, PyObject *value)
{
    Fact *fact = &self->facts[self->count];
    *fact = (Fact){.kind = kind, .of = Py_NewRef(of), .key = Py_XNewRef(key), .value = Py_XNewRef(value)};
    self->count++; /* from here on the garbage collector sees it */
    return fact;
}

/* Returns whether an object's items are read as those of the built-in type `base`; -1 with an exception. Compares
   `__getitem__`, since a subclass in Python has its own slot even if it overrides nothing. */
static int
reads_as(PyObject *object, PyTypeObject *base)
{
    if (Py_TYPE(object) == base) {
        return 1;
    }
    if (!PyType_IsSubtype(Py_TYPE(object), base)) {
        return 0;
    }
    PyObject *mine = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__getitem__");
    PyObject *theirs = PyObject_GetAttrString((PyObject *)base, "__getitem__");
    const int same = mine && theirs ? mine == theirs : -1;
    Py_XDECREF(mine);
    Py_XDECREF(theirs);
    return same;
}

static int
add_item(Guards *self, PyObject *entry, PyObject *unused)
{
    (void)unused;
    PyObject *container, *key, *value;
    if (!PyArg_ParseTuple(entry, "OOO;an item is a container, a key and a value", &container, &key, &value)) {
        return -1;
    }
    const int is_dict = reads_as(container, &PyDict_Type);
    const int is_list = is_dict == 0 && PyLong_CheckExact(key) ? reads_as(container, &PyList_Type) : 0;
    const Py_ssize_t place = is_list > 0 ? PyLong_AsSsize_t(key) : -1;
    if (is_dict < 0 || is_list < 0) {
        return -1;
    }
    PyErr_Clear(); /* if the index is too large for any list */
    Fact *fact = added(self, is_dict ? DICT : place >= 0 ? LIST : ITEM, container, key, value);
    fact->size = place;
    self->items++;
    return 0;
}

static int
add_size(Guards *self, PyObject *entry, PyObject *unused)
{
    (void)unused;
    PyObject *container;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(entry, "On;a size is a container and how many items it has", &container, &size)) {
        return -1;
    }
    added(self, SIZE, container, NULL, NULL)->size = size;
    return 0;
}

static int
add_attribute(Guards *self, PyObject *entry, PyObject *unused)
{
    (void)unused;
    PyObject *of, *name, *value;
    if (!PyArg_ParseTuple(entry, "OUO;an attribute is an object, a name and a value", &of, &name, &value)) {
        return -1;
    }
    added(self, ATTRIBUTE, of, name, value);
    return 0;
}

static int
add_count(Guards *self, PyObject *entry, PyObject *unused)
{
    (void)unused;
    PyObject *of, *name;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(entry, "OUn;a count is an object, a name and how many items are there", &of, &name, &size)) {
        return -1;
    }
    added(self, COUNT, of, name, NULL)->size = size;
    return 0;
}

static int
add_tensor(Guards *self, PyObject *tensor, PyObject *reading)
{
    Layout seen;
    if (self->layout_of && self->layout_of(tensor, &seen) == 0 && seen.code != COMPLEX) {
        Layout *layout = kept(&seen);
        if (!layout) {
            return -1;
        }
        added(self, LAYOUT, tensor, NULL, NULL)->layout = layout;
        return 0;
    }
    PyErr_Clear(); /* DLPack lacks some dtypes, such as quantized ones, and conjugate bits */
    PyObject *value = PyObject_CallFunctionObjArgs(reading, tensor, NULL);
    if (!value) {
        return -1;
    }
    added(self, READING, tensor, reading, value);
    Py_DECREF(value);
    return 0;
}

static int
add_all(Guards *self, PyObject *entries, int (*add)(Guards *, PyObject *, PyObject *), PyObject *with)
{
    const Py_ssize_t count = PyTuple_Size(entries);
    for (Py_ssize_t place = 0; place < count; place++) {
        if (add(self, PyTuple_GetItem(entries, place), with) < 0) {
            return -1;
        }
    }
    return 0;
}

enum { ITEMS, SIZES, ATTRIBUTES, COUNTS, TENSORS, SECTIONS };

static PyObject *
guards_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *given[SECTIONS], *reading, *exchange;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "Guards takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!OO:Guards", &PyTuple_Type, &given[ITEMS], &PyTuple_Type,
                          &given[SIZES], &PyTuple_Type, &given[ATTRIBUTES], &PyTuple_Type, &given[COUNTS],
                          &PyTuple_Type, &given[TENSORS], &reading, &exchange)) {
        return NULL;
    }
    Py_ssize_t room = 1;
    for (int section = 0; section < SECTIONS; section++) {
        room += PyTuple_Size(given[section]);
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Guards *self = (Guards *)allocate(type, 0);
    if (!self) {
        return NULL;
    }
    self->facts = malloc((size_t)room * sizeof(Fact));
    self->layout_of = layout_of_capsule(exchange);
    if (!self->facts) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    if (add_all(self, given[ITEMS], add_item, NULL) < 0 || add_all(self, given[SIZES], add_size, NULL) < 0 ||
        add_all(self, given[ATTRIBUTES], add_attribute, NULL) < 0 ||
        add_all(self, given[COUNTS], add_count, NULL) < 0 ||
        add_all(self, given[TENSORS], add_tensor, reading) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
guards_traverse(Guards *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (Py_ssize_t place = 0; place < self->count; place++) {
        Py_VISIT(self->facts[place].of);
        Py_VISIT(self->facts[place].key);
        Py_VISIT(self->facts[place].value);
    }
    return 0;
}

static int
guards_clear(Guards *self)
{
    Fact *facts = self->facts;
    const Py_ssize_t count = self->count;
    self->facts = NULL; /* releasing objects may run code that uses these guards */
    self->count = self->items = 0;
    for (Py_ssize_t place = 0; place < count; place++) {
        Py_DECREF(facts[place].of);
        Py_XDECREF(facts[place].key);
        Py_XDECREF(facts[place].value);
        free(facts[place].layout);
    }
    free(facts);
    return 0;
}

static void
guards_dealloc(Guards *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    guards_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef guards_methods[] = {
    {"hold", (PyCFunction)hold, METH_NOARGS, hold_doc},
    {"expect", (PyCFunction)expect, METH_VARARGS, expect_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(guards_doc, "Guards(items, sizes, attributes, counts, tensors, reading, exchange)\n--\n\nFacts, as "
                            "guards.py says, each kind in a tuple. `exchange`: the capsule of DLPack's by which "
                            "tensors are read; without it, the values of `reading` are compared.");

static PyType_Slot guards_slots[] = {
    {Py_tp_new, (void *)guards_new},         {Py_tp_dealloc, (void *)guards_dealloc},
    {Py_tp_traverse, (void *)guards_traverse}, {Py_tp_clear, (void *)guards_clear},
    {Py_tp_methods, guards_methods},         {Py_tp_doc, (void *)guards_doc},
    {0, NULL},
};

static PyType_Spec guards_spec = {
    .name = "unstall.fix.graphs.examine._guards.Guards",
    .basicsize = sizeof(Guards),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = guards_slots,
};

static int
add_types(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &guards_spec, NULL);
    const int failed = !type || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_types}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_guards", .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__guards(void)
{
    return PyModuleDef_Init(&module);
}
