// Locks that a fork takes before it happens: else a child would find held what a thread held that it does not have.
#pragma once
#include <mutex>

namespace unstall {

// For as long as the process runs. While one is held nothing may wait for the GIL, as the forking thread has it, nor for
// another of these.
class Lock : public std::mutex {
 public:
  Lock();
};

} // namespace unstall
