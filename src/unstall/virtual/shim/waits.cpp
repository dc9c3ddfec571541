#include "gil.h" // first: it includes Python.h

#include "devices.h"
#include "log.h"
#include "operators.h"
#include "waits.h"

#include <pybind11/stl.h>

#include <array>
#include <map>
#include <mutex>

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
    case WaitKind::PINNED_UPLOAD: return "pinned_upload";
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

// What is left of the largest cached blocks of each stream: for small requests, and for large ones.
struct Cached {
  Lock lock;
  std::map<std::pair<int, int64_t>, std::array<int64_t, 2>> left;
};

Cached& cached() {
  static auto* all = new Cached;
  return *all;
}

// Whether a request surely gets memory that is cached, as far as it is known; then that is taken. torch splits a large
// block only if more than 1 MiB is left.
bool is_cached(const Allocating& request) {
  constexpr int64_t MIB = 1 << 20;
  if (capturing(request.device, request.stream)) return false;
  int64_t size = (request.bytes + 511) / 512 * 512;
  bool large = size > MIB;
  std::lock_guard guard(cached().lock);
  auto found = cached().left.find({request.device, request.stream});
  if (found == cached().left.end()) return false;
  int64_t& left = found->second[large];
  if (left < size) return false;
  left -= size + (large ? MIB : 0);
  return true;
}

void forget_cached() {
  std::lock_guard guard(cached().lock);
  cached().left.clear();
}

} // namespace

void set_cached(int device, int64_t stream, int64_t small, int64_t large) {
  std::lock_guard guard(cached().lock);
  cached().left[{device, stream}] = {small, large};
}

void set_wait_watcher(PyObject* wanted) {
  PyObject* before = watcher;
  watcher = wanted && wanted != Py_None ? Py_NewRef(wanted) : nullptr;
  Py_XDECREF(before);
}

void set_guarding(bool on) {
  forget_cached();
  set_bits(GUARDS, on ? GUARDS : 0);
}

void set_sync_debug_mode(int mode) {
  set_bits(DEBUG_WARNS | DEBUG_RAISES, mode == 2 ? DEBUG_RAISES : mode == 1 ? DEBUG_WARNS : 0);
}

int sync_debug_mode() {
  int watching = watching_waits.load();
  return watching & DEBUG_RAISES ? 2 : watching & DEBUG_WARNS ? 1 : 0;
}

// Asks the watcher's method, which gets the operators that this thread is in, and then the arguments.
template <class... Args>
void Waiting::ask(const char* method, const char* format, Args... args) {
  if (!watcher || !python_runs()) return;
  Gil gil;
  PyObject* operators = pybind11::cast(operators_here()).release().ptr();
  token_ = PyObject_CallMethod(watcher, method, format, operators, args...);
  if (!token_) rethrow();
  if (token_ == Py_None) Py_CLEAR(token_);
}

Waiting::Waiting(const AWait& wait) {
  int watching = watching_waits.load(std::memory_order_relaxed);
  if (depth == 0 && wait.in_torch && watching & (DEBUG_WARNS | DEBUG_RAISES)) warn_or_raise(watching);
  if (depth == 0 && watching & GUARDS)
    ask("before", "NsLi", name_of(wait.kind), static_cast<long long>(wait.bytes), int(wait.staged));
  depth++;
}

Waiting::Waiting(const Allocating& request) {
  if (depth == 0 && watching_waits.load(std::memory_order_relaxed) & GUARDS && !is_cached(request)) {
    ask("allocating", "NiLL", request.device, static_cast<long long>(request.stream),
        static_cast<long long>(request.bytes));
    is_cached(request);
  }
  depth++;
}

Waiting::Waiting(const Launching& launch) {
  if (depth == 0 && watching_waits.load(std::memory_order_relaxed) & GUARDS)
    ask("launching", "NiLi", launch.device, static_cast<long long>(launch.stream), int(launch.signature));
  depth++;
}

Waiting::Waiting(const Emptying& cache) {
  if (depth == 0 && watching_waits.load(std::memory_order_relaxed) & GUARDS) ask("emptying_cache", "Ni", cache.device);
  forget_cached();
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
