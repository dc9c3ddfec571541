#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "signals.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

namespace unstall {
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

// Faults come from the instruction that is being executed, and cannot wait.
bool can_wait(int signal) {
  switch (signal) {
    case SIGKILL: case SIGSTOP: case SIGSEGV: case SIGBUS: case SIGFPE: case SIGILL: case SIGTRAP: case SIGABRT:
    case SIGSYS: return false;
    default: return true;
  }
}

// Those for which signal.signal() was given a function.
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
  PyObject *type, *value, *traceback; // an exception that is on its way stays
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
