extern "C" {
#include "_frames.h"
}
#include "stacks.h"

#include <pthread.h>
#include <atomic>

namespace unstall {
namespace {
std::atomic<bool> reading{false};
}

int32_t python_stack() {
  return reading.load(std::memory_order_relaxed) ? frames_here_all() : NO_FRAME;
}

_object* stacks_from(uint32_t first) {
  return frames_stacks(first);
}

void read_stacks(bool wanted) {
  static const int registered = pthread_atfork(nullptr, nullptr, frames_forked);
  (void)registered;
  reading = wanted && frames_supported();
}

} // namespace unstall
