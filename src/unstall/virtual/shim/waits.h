// Waits of the host for the device: those who guard against them (guarding/) are asked before each wait and told after
// it. So is torch's own debug mode for them, torch.cuda.set_sync_debug_mode.
#pragma once
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

struct _object;

namespace unstall {

// How the host waits. The names are those of guarding/kinds.py.
enum class WaitKind { VALUE, DOWNLOAD, UPLOAD, PINNED_UPLOAD, STREAM, EVENT, DEVICE, MALLOC, FREE };

// A wait that is about to happen. torch's debug mode covers those `in_torch`, which torch makes by
// c10::cuda::memcpy_and_sync and stream_synchronize.
struct AWait {
  WaitKind kind;
  int64_t bytes = 0; // that are copied
  bool staged = false; // by a copy that does not block, from or to pageable memory
  bool in_torch = false;
};

// What watches for waits: bits.
enum Watching : int { GUARDS = 1, DEBUG_WARNS = 2, DEBUG_RAISES = 4 };
extern std::atomic<int> watching_waits;

// The Python object (virtual/guarded_waits.py) that is asked and told, if `guarding` is on. With the GIL.
void set_wait_watcher(_object* watcher);
void set_guarding(bool on);
// The largest cached blocks, for small and for large requests of a stream. Requests that surely fit there are not asked
// about.
void set_cached(int device, int64_t stream, int64_t small, int64_t large);
// 0: off, 1: warns, 2: raises.
void set_sync_debug_mode(int mode);
int sync_debug_mode();

// A request for device memory, and an operator's launch: these wait if the caching allocator, or the operator, then
// calls the driver.
struct Allocating {
  int device;
  int64_t stream, bytes;
};
struct Launching {
  int device;
  int64_t stream;
  int32_t signature;
};
// torch.cuda.empty_cache() of one device.
struct Emptying {
  int device;
};

// One wait from before it begins until it is over. A wait within another one is part of that.
class Waiting {
 public:
  explicit Waiting(const AWait& wait);
  explicit Waiting(const Allocating& request);
  explicit Waiting(const Launching& launch);
  explicit Waiting(const Emptying& cache);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  void over(); // tells; may raise

 private:
  template <class... Args>
  void ask(const char* method, const char* format, Args... args);
  _object* token_ = nullptr;
};

// Runs `act`, which waits. If a guard refuses the wait, raises its error and runs nothing.
template <class What, class Act>
auto waiting(const What& what, Act&& act) {
  if (!watching_waits.load(std::memory_order_relaxed)) return act();
  Waiting scope(what);
  if constexpr (std::is_void_v<decltype(act())>) {
    act();
    scope.over();
  } else {
    auto result = act();
    scope.over();
    return result;
  }
}

} // namespace unstall
