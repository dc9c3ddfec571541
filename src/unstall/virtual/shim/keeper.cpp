#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "keeper.h"

#include "log.h"
#include "signals.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <string>
#include <utility>

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

// Raises the exception that is set: as torch's own error where the device is full, else as it is.
[[noreturn]] void rethrow() {
  pybind11::error_already_set error;
  const char* name = reinterpret_cast<PyTypeObject*>(error.type().ptr())->tp_name;
  std::string full = name ? name : "";
  bool out_of_memory = full.size() >= 16 && full.compare(full.size() - 16, 16, "OutOfMemoryError") == 0;
  if (!out_of_memory) throw error;
  std::string text;
  PyObject* str = PyObject_Str(error.value().ptr());
  if (const char* utf8 = str ? PyUnicode_AsUTF8(str) : nullptr) text = utf8;
  Py_XDECREF(str);
  PyErr_Clear();
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  throw error;
}

// A call's result is passed to `use`; what it raises is raised.
template <class Use, class... Args>
auto asked(Use use, const char* method, const char* format, Args... args) {
  Gil gil;
  SignalsWait waiting;
  PyObject* result = PyObject_CallMethod(keeper, method, format, args...);
  if (!result) rethrow();
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

PyObject* later = nullptr; // with the GIL

// Python calls it in its main thread, between one instruction and the next.
int raise_in_python(void* exception) {
  auto* object = static_cast<PyObject*>(exception);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(object)), object);
  Py_DECREF(object);
  return -1;
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
    {
      SignalsWait waiting;
      PyObject* result = PyObject_CallMethod(keeper, "drain", nullptr);
      Py_XDECREF(result);
    }
    if (PyErr_Occurred()) {
      PyObject* raised = pybind11::error_already_set().value().inc_ref().ptr();
      if (Py_AddPendingCall(raise_in_python, raised)) Py_DECREF(raised);
    }
    PyErr_Restore(type, value, traceback);
  }
  draining = false;
}

void make_room(int device, int64_t bytes, int64_t allocation) {
  if (there())
    asked(truth, "make_room", "iLL", device, static_cast<long long>(bytes), static_cast<long long>(allocation));
}

std::atomic<bool> is_raised_later{false};

void raise_later(PyObject* exception) {
  Py_XSETREF(later, Py_NewRef(exception));
  is_raised_later = true;
}

void raise_now() {
  if (!there()) return;
  Gil gil;
  is_raised_later = false;
  PyObject* exception = std::exchange(later, nullptr);
  if (!exception) return; // another thread was faster
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  Py_DECREF(exception);
  rethrow();
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
