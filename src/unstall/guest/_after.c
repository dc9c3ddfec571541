/* A callable that replaces a function: it calls the function, and then a callback, if the function returned or the
   callback is always to be called. Unlike a wrapper in Python, it adds no entry to tracebacks. The reference
   implementation is in patching.py. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *original;
    PyObject *after; /* NULL once disarmed */
    PyObject *dict;
    PyObject *weak;
    int always; /* the callback is also called if the original raises */
} After;

static PyObject *
after_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    After *wrapper = (After *)self;
    PyObject *result = PyObject_Call(wrapper->original, args, kwargs);
    PyObject *after = result || wrapper->always ? wrapper->after : NULL;
    if (after) {
        PyObject *type, *error, *traceback; /* what the original raised: NULL if it returned */
        PyErr_Fetch(&type, &error, &traceback);
        Py_INCREF(after); /* the callback may disarm this wrapper */
        PyObject *told = PyObject_Call(after, args, kwargs);
        Py_DECREF(after);
        if (told) {
            Py_DECREF(told);
            PyErr_Restore(type, error, traceback);
        } else { /* what the callback raises replaces all else */
            Py_CLEAR(result);
            Py_XDECREF(type);
            Py_XDECREF(error);
            Py_XDECREF(traceback);
        }
    }
    return result;
}

static PyObject *
after_bind(PyObject *self, PyObject *instance, PyObject *owner)
{
    (void)owner;
    PyObject *original = ((After *)self)->original;
    if (!instance || instance == Py_None || !PyObject_HasAttrString((PyObject *)Py_TYPE(original), "__get__")) {
        return Py_NewRef(self); /* like a built-in function, it does not become a method */
    }
    PyObject *types = PyImport_ImportModule("types");
    PyObject *method = types ? PyObject_CallMethod(types, "MethodType", "OO", self, instance) : NULL;
    Py_XDECREF(types);
    return method;
}

static PyObject *
after_disarm(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_CLEAR(((After *)self)->after);
    Py_RETURN_NONE;
}

static PyObject *
after_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *original, *after;
    int always;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "After takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOp:After", &original, &after, &always)) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    After *self = (After *)allocate(type, 0);
    if (self) {
        self->original = Py_NewRef(original);
        self->after = Py_NewRef(after);
        self->always = always;
    }
    return (PyObject *)self;
}

static int
after_traverse(PyObject *self, visitproc visit, void *arg)
{
    After *wrapper = (After *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(wrapper->original);
    Py_VISIT(wrapper->after);
    Py_VISIT(wrapper->dict);
    return 0;
}

static int
after_clear(PyObject *self)
{
    After *wrapper = (After *)self;
    Py_CLEAR(wrapper->original);
    Py_CLEAR(wrapper->after);
    Py_CLEAR(wrapper->dict);
    return 0;
}

static void
after_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((After *)self)->weak) {
        PyObject_ClearWeakRefs(self);
    }
    (void)after_clear(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Pickled and copied by name, like a function. */
static PyObject *
after_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef after_methods[] = {
    {"__reduce__", after_reduce, METH_NOARGS, NULL},
    {"disarm", after_disarm, METH_NOARGS, "disarm()\n\nOnly call the original from now on."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef after_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(After, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(After, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef after_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot after_slots[] = {
    {Py_tp_new, (void *)after_new},
    {Py_tp_call, (void *)after_call},
    {Py_tp_descr_get, (void *)after_bind},
    {Py_tp_getattro, (void *)PyObject_GenericGetAttr},
    {Py_tp_setattro, (void *)PyObject_GenericSetAttr},
    {Py_tp_traverse, (void *)after_traverse},
    {Py_tp_clear, (void *)after_clear},
    {Py_tp_dealloc, (void *)after_dealloc},
    {Py_tp_methods, after_methods},
    {Py_tp_members, after_members},
    {Py_tp_getset, after_getset},
    {0, NULL},
};

static PyType_Spec after_spec = {
    .name = "unstall.guest._after.After",
    .basicsize = sizeof(After),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = after_slots,
};

static int
exec_module(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&after_spec);
    int failed = !type || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_after",
    .m_doc = "Tells of calls of a function by others, and is in no traceback.",
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__after(void)
{
    return PyModuleDef_Init(&definition);
}
