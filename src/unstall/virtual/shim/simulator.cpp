#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "simulator.h"

#include "gil.h"
#include "log.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace unstall {
namespace {

PyObject* simulator = nullptr;
std::atomic<bool> draining{false};

// Calls a method of the simulator and passes its result to `use`; raises its exceptions.
template <class Use, class... Args>
auto asked(Use use, const char* method, const char* format, Args... args) {
  Gil gil;
  SignalsWait waiting;
  PyObject* result = PyObject_CallMethod(simulator, method, format, args...);
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

// Python calls it in the main thread, between two instructions.
int raise_in_python(void* exception) {
  auto* object = static_cast<PyObject*>(exception);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(object)), object);
  Py_DECREF(object);
  return -1;
}

bool there() {
  return simulator && python_runs();
}

} // namespace

void set_simulator(PyObject* wanted) {
  PyObject* before = simulator;
  simulator = wanted && wanted != Py_None ? Py_NewRef(wanted) : nullptr;
  Py_XDECREF(before);
}

void drain_when_long() {
  if (!log_is_long() || !there() || draining.exchange(true)) return;
  {
    Gil gil;
    // An exception that is being raised stays.
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    {
      SignalsWait waiting;
      PyObject* result = PyObject_CallMethod(simulator, "drain", nullptr);
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

void make_room(int device, int64_t allocation) {
  if (there()) asked(truth, "make_room", "iL", device, static_cast<long long>(allocation));
}

CallFacts call_facts(int32_t signature) {
  if (!there()) return {};
  auto facts = [](PyObject* tuple) {
    long long growth = -1;
    int reads = 0;
    if (!PyArg_ParseTuple(tuple, "Lp", &growth, &reads)) rethrow();
    return CallFacts{growth, reads != 0};
  };
  return asked(facts, "call_facts", "i", int(signature));
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
  if (!exception) return; // another thread raised it
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

int64_t ask_simulator(const char* method, const std::function<PyObject*()>& make) {
  if (!there()) return 0;
  Gil gil;
  SignalsWait waiting;
  PyObject* arguments = make();
  PyObject* bound = arguments ? PyObject_GetAttrString(simulator, method) : nullptr;
  PyObject* result = bound ? PyObject_CallObject(bound, arguments) : nullptr;
  Py_XDECREF(bound);
  Py_XDECREF(arguments);
  if (!result) rethrow();
  int64_t number = PyLong_AsLongLong(result);
  Py_DECREF(result);
  if (PyErr_Occurred()) rethrow();
  return number;
}

std::string place_of(int32_t stack) {
  return stack >= 0 && there() ? asked(text_of, "place_of", "i", int(stack)) : "";
}

void warn_at(int32_t stack, const char* message) {
  if (there()) asked([](PyObject*) { return true; }, "warn_at", "is", int(stack), message);
}

namespace {

constexpr int SIGNALS = 65;
volatile sig_atomic_t came[SIGNALS];
struct sigaction before[SIGNALS];
std::vector<int> held;
int depth = 0; // of the main thread only

void note(int signal) {
  came[signal] = 1;
}

bool is_main_thread() {
  return syscall(SYS_gettid) == getpid();
}

// Faults come from the current instruction and cannot wait.
bool can_wait(int signal) {
  switch (signal) {
    case SIGKILL: case SIGSTOP: case SIGSEGV: case SIGBUS: case SIGFPE: case SIGILL: case SIGTRAP: case SIGABRT:
    case SIGSYS: return false;
    default: return true;
  }
}

// The signals whose handler is a function given to signal.signal().
std::vector<int> handled_by_python() {
  static PyObject* getsignal = [] {
    PyObject* module = PyImport_ImportModule("_signal");
    PyObject* found = module ? PyObject_GetAttrString(module, "getsignal") : nullptr;
    Py_XDECREF(module);
    return found;
  }();
  std::vector<int> result;
  for (int signal = 1; getsignal && signal < SIGNALS; signal++) {
    if (!can_wait(signal) || signal == 32 || signal == 33) continue; // those two are the C library's
    PyObject* handler = PyObject_CallFunction(getsignal, "i", signal);
    if (handler && PyCallable_Check(handler)) result.push_back(signal);
    Py_XDECREF(handler);
  }
  PyErr_Clear();
  return result;
}

} // namespace

void hold_signals() {
  if (!is_main_thread() || depth++) return;
  PyObject *type, *value, *traceback; // an exception that is being raised stays
  PyErr_Fetch(&type, &value, &traceback);
  held = handled_by_python();
  PyErr_Restore(type, value, traceback);
  for (int signal : held) {
    struct sigaction noting = {};
    noting.sa_handler = note;
    noting.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(signal, &noting, &before[signal]);
  }
}

void release_signals() {
  if (!is_main_thread() || --depth) return;
  for (int signal : held) sigaction(signal, &before[signal], nullptr);
  for (int signal : held) {
    if (!came[signal]) continue;
    came[signal] = 0;
    raise(signal);
  }
}

SignalsWait::SignalsWait() {
  hold_signals();
}

SignalsWait::~SignalsWait() {
  release_signals();
}

} // namespace unstall
