// Pinned host memory, as CUDA's caching host allocator hands it out: blocks of a power of two, kept for the next request.
#include "memory.h"

#include "locks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/llvmMathExtras.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

namespace unstall {
namespace {

struct Pinned {
  Lock lock;
  std::map<uintptr_t, std::pair<size_t, int64_t>> taken; // where it starts -> its size and number
  std::multimap<size_t, void*> kept;
};

Pinned& pinned() {
  static auto* pinned = new Pinned;
  return *pinned;
}

std::atomic<int> pinned_count{0};
std::atomic<int64_t> numbers{0};

void give_back(void* pointer) {
  auto& all = pinned();
  std::lock_guard guard(all.lock);
  auto found = all.taken.find(reinterpret_cast<uintptr_t>(pointer));
  all.kept.emplace(found->second.first, pointer);
  all.taken.erase(found);
  pinned_count--;
}

void* kept_block(size_t size) {
  auto& all = pinned();
  std::lock_guard guard(all.lock);
  auto found = all.kept.find(size);
  if (found == all.kept.end()) return nullptr;
  void* pointer = found->second;
  all.kept.erase(found);
  return pointer;
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, c10::detail::deleteNothing, c10::Device(c10::kCPU)};
    size_t size = c10::llvm::PowerOf2Ceil(bytes);
    void* pointer = kept_block(size);
    if (!pointer) {
      pointer = c10::GetCPUAllocator()->raw_allocate(size);
      write({.code = Code::PIN, .a = int64_t(size), .b = 1});
    }
    auto& all = pinned();
    std::lock_guard guard(all.lock);
    all.taken[reinterpret_cast<uintptr_t>(pointer)] = {size, --numbers};
    pinned_count++;
    return {pointer, pointer, give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

PinnedAllocator the_allocator;

} // namespace

c10::Allocator* pinned_allocator() {
  return &the_allocator;
}

std::pair<int64_t, int64_t> pinned_block(const void* pointer) {
  if (!pinned_count.load(std::memory_order_relaxed)) return {0, 0};
  auto& all = pinned();
  auto at = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard guard(all.lock);
  auto after = all.taken.upper_bound(at);
  if (after == all.taken.begin()) return {0, 0};
  auto& [start, block] = *std::prev(after);
  if (at - start >= block.first) return {0, 0};
  return {block.second, int64_t(at - start)};
}

bool is_pinned(const void* pointer) {
  return pinned_block(pointer).first != 0;
}

} // namespace unstall
