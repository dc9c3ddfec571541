#pragma once
#include "log.h"

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

namespace unstall {

// Places in the program, by the numbers of their stacks, in order of their first use.
class Places {
 public:
  // Adds the current place, and returns it if it is a new one.
  std::optional<int32_t> add_here() {
    const int32_t here = stack_here();
    std::lock_guard guard(lock_);
    if (!known_.insert(here).second) return std::nullopt;
    stacks_.push_back(here);
    return here;
  }

  std::vector<int32_t> stacks() {
    std::lock_guard guard(lock_);
    return stacks_;
  }

 private:
  Lock lock_;
  std::unordered_set<int32_t> known_;
  std::vector<int32_t> stacks_;
};

} // namespace unstall
