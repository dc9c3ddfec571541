#include "gil.h" // first: it includes Python.h

#include "operators.h"
#include "waits.h"

#include <pybind11/stl.h>

namespace unstall {

std::atomic<int> watching_waits{0};

namespace {

PyObject* watcher = nullptr;
thread_local int depth = 0; // of waits

const char* name_of(WaitKind kind) {
  switch (kind) {
    case WaitKind::VALUE: return "value";
    case WaitKind::DOWNLOAD: return "download";
    case WaitKind::UPLOAD: return "upload";
    case WaitKind::STREAM: return "stream";
    case WaitKind::EVENT: return "event";
    case WaitKind::DEVICE: return "device";
    case WaitKind::MALLOC: return "malloc";
    case WaitKind::FREE: return "free";
  }
  return "";
}

void set_bits(int mask, int bits) {
  int before = watching_waits.load();
  while (!watching_waits.compare_exchange_weak(before, (before & ~mask) | bits)) {
  }
}

// As c10/cuda/CUDAFunctions.cpp does it, with the name of that file.
void warn_or_raise(int watching) {
  constexpr const char* TEXT = "called a synchronizing CUDA operation";
  c10::SourceLocation where{"warn_or_error_on_sync", "/pytorch/c10/cuda/CUDAFunctions.cpp", 151};
  if (watching & DEBUG_RAISES) throw c10::Error(where, TEXT);
  c10::warn(c10::Warning(c10::UserWarning(), where, TEXT, false));
}

} // namespace

void set_wait_watcher(PyObject* wanted) {
  PyObject* before = watcher;
  watcher = wanted && wanted != Py_None ? Py_NewRef(wanted) : nullptr;
  Py_XDECREF(before);
}

void set_guarding(bool on) {
  set_bits(GUARDS, on ? GUARDS : 0);
}

void set_sync_debug_mode(int mode) {
  set_bits(DEBUG_WARNS | DEBUG_RAISES, mode == 2 ? DEBUG_RAISES : mode == 1 ? DEBUG_WARNS : 0);
}

int sync_debug_mode() {
  int watching = watching_waits.load();
  return watching & DEBUG_RAISES ? 2 : watching & DEBUG_WARNS ? 1 : 0;
}

Waiting::Waiting(const AWait& wait) {
  int watching = watching_waits.load(std::memory_order_relaxed);
  if (depth == 0) {
    if (wait.in_torch && watching & (DEBUG_WARNS | DEBUG_RAISES)) warn_or_raise(watching);
    if (watching & GUARDS && watcher && python_runs()) {
      Gil gil;
      PyObject* operators = pybind11::cast(operators_here()).release().ptr();
      auto bytes = static_cast<long long>(wait.bytes);
      token_ = PyObject_CallMethod(watcher, "before", "sNLi", name_of(wait.kind), operators, bytes, int(wait.staged));
      if (!token_) rethrow();
      if (token_ == Py_None) Py_CLEAR(token_);
    }
  }
  depth++;
}

Waiting::~Waiting() {
  depth--;
  if (!token_ || !python_runs()) return;
  Gil gil;
  Py_CLEAR(token_);
}

void Waiting::over() {
  if (!token_ || !python_runs()) return;
  Gil gil;
  PyObject* result = PyObject_CallMethod(watcher, "after", "(O)", token_);
  if (!result) rethrow();
  Py_DECREF(result);
}

} // namespace unstall
