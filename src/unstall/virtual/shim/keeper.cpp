#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "keeper.h"

#include "log.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <string>

namespace unstall {
namespace {

PyObject* keeper = nullptr;
std::atomic<bool> draining{false};

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// A thread that asks for the GIL while the interpreter ends does not come back.
bool python_runs() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// The exception that is set, as text; cleared.
std::string exception_text(bool& out_of_memory) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  std::string text = "the virtual GPU's simulation failed";
  if (PyObject* str = value ? PyObject_Str(value) : nullptr) {
    if (const char* utf8 = PyUnicode_AsUTF8(str)) text = utf8;
    Py_DECREF(str);
  }
  PyErr_Clear();
  const char* name = type ? reinterpret_cast<PyTypeObject*>(type)->tp_name : "";
  std::string full = name ? name : "";
  out_of_memory = full.size() >= 16 && full.compare(full.size() - 16, 16, "OutOfMemoryError") == 0;
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return text;
}

// A call's result is passed to `use`; what it raises becomes an error of torch.
template <class Use, class... Args>
auto asked(Use use, const char* method, const char* format, Args... args) {
  Gil gil;
  PyObject* result = PyObject_CallMethod(keeper, method, format, args...);
  if (!result) {
    bool out_of_memory = false;
    std::string text = exception_text(out_of_memory);
    TORCH_CHECK_WITH(OutOfMemoryError, !out_of_memory, text);
    TORCH_CHECK(false, text);
  }
  auto answer = use(result);
  Py_DECREF(result);
  return answer;
}

bool truth(PyObject* object) {
  return PyObject_IsTrue(object) == 1;
}

std::string text_of(PyObject* object) {
  const char* utf8 = PyUnicode_AsUTF8(object);
  if (!utf8) PyErr_Clear();
  return utf8 ? utf8 : "";
}

bool there() {
  return keeper && python_runs();
}

} // namespace

void set_keeper(PyObject* wanted) {
  PyObject* before = keeper;
  keeper = wanted && wanted != Py_None ? Py_NewRef(wanted) : nullptr;
  Py_XDECREF(before);
}

void drain_when_long() {
  if (!log_is_long() || !there() || draining.exchange(true)) return;
  {
    Gil gil;
    // Beside what the program is doing: an exception that is on its way stays.
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject* result = PyObject_CallMethod(keeper, "drain", nullptr);
    if (!result) PyErr_WriteUnraisable(keeper);
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
  }
  draining = false;
}

void make_room(int device, int64_t bytes) {
  if (there()) asked(truth, "make_room", "iL", device, static_cast<long long>(bytes));
}

bool event_done(int64_t event) {
  return !there() || asked(truth, "event_done", "L", static_cast<long long>(event));
}

bool stream_done(int device, int64_t stream) {
  return !there() || asked(truth, "stream_done", "iL", device, static_cast<long long>(stream));
}

double elapsed_ms(int64_t first, int64_t second) {
  if (!there()) return 0;
  return asked(PyFloat_AsDouble, "elapsed_ms", "LL", static_cast<long long>(first), static_cast<long long>(second));
}

std::string place_of(int32_t stack) {
  return stack >= 0 && there() ? asked(text_of, "place_of", "i", int(stack)) : "";
}

} // namespace unstall
