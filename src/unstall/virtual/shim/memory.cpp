#include "memory.h"

#include "asserts.h"
#include "devices.h"
#include "gpu_trace.h"
#include "simulator.h"
#include "waits.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/llvmMathExtras.h>

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

namespace unstall {
namespace {

using c10::DataPtr;
using c10::Device;
using c10::StorageImpl;

std::atomic<int64_t> allocations{0};

struct Headroom {
  std::array<std::atomic<int64_t>, MOST_DEVICES> bytes;
  Headroom() {
    for (auto& device : bytes) device = std::numeric_limits<int64_t>::max();
  }
};
Headroom headroom;

// The most by which a request can grow reserved memory: the segment that CUDACachingAllocator takes with default
// settings. With other settings the simulator gives less headroom.
int64_t worst_growth(int64_t bytes) {
  constexpr int64_t MIB = 1 << 20;
  int64_t rounded = (bytes + 511) / 512 * 512;
  if (rounded <= MIB) return 2 * MIB;
  if (rounded < 10 * MIB) return 20 * MIB;
  return (rounded + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

// Returns whether it is certain that reserved memory can grow by this much. If so, takes that room.
bool takes_room(int device, int64_t growth) {
  auto& left = headroom.bytes[size_t(device)];
  if (growth == 0 || left.load(std::memory_order_relaxed) == std::numeric_limits<int64_t>::max()) return true;
  return (left -= growth) >= 0;
}

void log_free(int device, int64_t allocation) {
  if (allocation) write({.code = Code::FREE, .device = device, .stream = current_stream(device), .a = allocation});
}

int64_t log_request(int device, int64_t bytes) {
  bool fits = takes_room(device, worst_growth(bytes));
  int64_t allocation = ++allocations;
  write({.code = Code::MALLOC, .device = device, .stream = current_stream(device), .a = allocation, .b = bytes});
  if (fits) return allocation;
  try {
    make_room(device, allocation);
  } catch (const c10::OutOfMemoryError&) {
    throw; // nothing was allocated
  } catch (...) {
    log_free(device, allocation);
    throw;
  }
  return allocation;
}

int64_t log_malloc(int device, int64_t bytes) {
  if (bytes == 0) return 0;
  int64_t allocation = 0;
  try {
    waiting(Allocating{device, current_stream(device), bytes}, [&] { allocation = log_request(device, bytes); });
  } catch (...) { // of a guard that has seen the wait
    log_free(device, allocation);
    throw;
  }
  return allocation;
}

void trace_free(const void* data) {
  if (data) to_gpu_trace([&](auto& to) { to.trace_gpu_memory_deallocation(c10::kCUDA, address(data)); });
}

// Memory of this machine that stands for the device's is given back: that takes ms, and is no work of the program's.
void give_back_bytes(Block* block) {
  ThreadState& thread = this_thread();
  const bool counted = thread.computing || thread.own_since;
  const int64_t since = now_ns();
  delete block;
  if (!counted) thread.computing_ns += now_ns() - since;
}

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  trace_free(block->cpu->data());
  log_free(block->device, block->allocation);
  if (block->graph) keep_spare(block->graph, block->cpu);
  give_back_bytes(block);
}

void trace_allocation(const void* data) {
  if (data) to_gpu_trace([&](auto& to) { to.trace_gpu_memory_allocation(c10::kCUDA, address(data)); });
}

DataPtr untraced(Block* block) {
  return DataPtr(block->cpu->mutable_data(), block, free_block, Device(c10::kCUDA, c10::DeviceIndex(block->device)));
}

DataPtr data_of(Block* block) {
  trace_allocation(block->cpu->data());
  return untraced(block);
}

// The block stays; only its bytes moved.
void follow_data(StorageImpl& storage, Block* block) {
  storage._mutable_data_ptr_no_checks().release_context();
  storage.set_data_ptr_noswap(untraced(block));
}

// Memory that is not backed until it is touched, and reads as 0: for storages whose values are not computed.
struct LazyAllocator final : c10::Allocator {
  struct Mapping {
    void* pointer;
    size_t bytes;
  };
  static void unmap(void* context) {
    auto* mapping = static_cast<Mapping*>(context);
    munmap(mapping->pointer, mapping->bytes);
    delete mapping;
  }
  DataPtr allocate(size_t bytes) override {
    void* pointer =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(pointer != MAP_FAILED, "the virtual GPU has no address space for ", bytes, " bytes");
    return {pointer, new Mapping{pointer, bytes}, unmap, Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
LazyAllocator lazy_allocator;

// If numerics are skipped: storages larger than MOST_KNOWN elements of 8 bytes.
bool is_lazy(size_t bytes) {
  return settings().skip && bytes > size_t(1) << 19;
}

// If numerics are skipped, a value that is not computed is 0: operators that find shapes by values take that as an index.
c10::intrusive_ptr<StorageImpl> cpu_storage(size_t bytes) {
  c10::Allocator* allocator = is_lazy(bytes) ? &lazy_allocator : c10::GetCPUAllocator();
  auto storage = c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes, allocator, true);
  if (settings().skip && !is_lazy(bytes)) std::memset(storage->mutable_data(), 0, bytes);
  return storage;
}

struct DeviceAllocator final : c10::Allocator {
  DataPtr allocate(size_t bytes) override {
    int device = current_device();
    check_usable(device);
    int64_t allocation = log_malloc(device, int64_t(bytes)); // first: a device that is full needs no memory here
    auto [graph, cpu] = spare_here(device, bytes);
    if (!cpu) cpu = cpu_storage(bytes);
    Known known = is_lazy(bytes) ? std::make_shared<Origin>(Origin::MISSING) : nullptr;
    return data_of(new Block{std::move(cpu), allocation, int64_t(bytes), device, graph, std::move(known)});
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

DeviceAllocator the_allocator;
// Before torch looks it up, as it does for a storage made by device.
const bool registered = (c10::SetAllocator(c10::kCUDA, &the_allocator), true);

} // namespace

c10::Allocator* device_allocator() {
  return &the_allocator;
}

c10::intrusive_ptr<StorageImpl> new_storage(size_t bytes) {
  return c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes, &the_allocator, true);
}

Block* block_of(const StorageImpl& storage) {
  const auto& data = storage.data_ptr();
  return data.get_deleter() == free_block ? static_cast<Block*>(data.get_context()) : nullptr;
}

namespace {

c10::intrusive_ptr<StorageImpl> storage_of(Block* block) {
  return c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), block->bytes, data_of(block), &the_allocator, true);
}

} // namespace

c10::intrusive_ptr<StorageImpl> storage_over(c10::intrusive_ptr<StorageImpl> cpu, int device) {
  auto bytes = int64_t(cpu->nbytes());
  int64_t allocation = log_malloc(device, bytes);
  return storage_of(new Block{std::move(cpu), allocation, bytes, device});
}

c10::intrusive_ptr<StorageImpl> storage_of_others(c10::intrusive_ptr<StorageImpl> cpu, int device) {
  auto bytes = int64_t(cpu->nbytes());
  return storage_of(new Block{std::move(cpu), 0, bytes, device});
}

void move_bytes(StorageImpl& storage, c10::DataPtr data) {
  Block* block = block_of(storage);
  const void* before = storage.data();
  {
    std::unique_lock alone(bytes_in_use());
    if (block->origin() != Origin::MISSING) std::memcpy(data.mutable_get(), before, size_t(block->bytes));
    block->cpu->set_data_ptr_noswap(std::move(data));
    follow_data(storage, block);
  }
  trace_free(before);
  trace_allocation(storage.data());
}

void follow_bytes(StorageImpl& storage) {
  Block* block = block_of(storage);
  auto bytes = int64_t(block->cpu->nbytes());
  if (block->cpu->data() == storage.data() && bytes == block->bytes) return;
  int64_t before = block->allocation, held = std::min(block->bytes, bytes);
  block->allocation = log_malloc(block->device, bytes);
  if (before && held) {
    Use uses[2] = {{before, 0, held, 0, {}}, {block->allocation, 0, held, 1, {}}};
    write({.code = Code::COPY, .device = block->device, .stream = current_stream(block->device), .a = held, .b = -1,
           .flags = D2D | NON_BLOCKING, .uses = uses, .use_count = 2});
  }
  log_free(block->device, before);
  trace_free(storage.data());
  block->bytes = bytes;
  follow_data(storage, block);
  trace_allocation(storage.data());
  storage.set_nbytes(size_t(bytes));
}

void resize_bytes(StorageImpl& storage, int64_t bytes) {
  Block* block = block_of(storage);
  TORCH_CHECK(block, "Trying to resize storage that is not resizable");
  auto grown = cpu_storage(size_t(bytes));
  size_t held = size_t(std::min(block->bytes, bytes));
  if (held && block->origin() != Origin::MISSING) std::memcpy(grown->mutable_data(), block->cpu->data(), held);
  if (block->cpu.use_count() > 1) { // the nodes of a graph use what was there before
    if (block->graph) keep_spare(block->graph, block->cpu);
    block->cpu = std::move(grown);
  } else {
    block->cpu->set_data_ptr_noswap(std::move(grown->mutable_data_ptr()));
    block->cpu->set_nbytes(size_t(bytes));
  }
  follow_bytes(storage);
}

void log_launch(Entry entry, int64_t growth) {
  bool fits = takes_room(entry.device, growth);
  if (!fits) entry.b = ++allocations;
  write(entry);
  if (!fits) make_room(entry.device, entry.b);
}

void use_on_stream(const DataPtr& data, int64_t stream) {
  if (data.get_deleter() != free_block) return;
  auto* block = static_cast<Block*>(data.get_context());
  if (block->allocation)
    write({.code = Code::USE_STREAM, .device = block->device, .stream = stream, .a = block->allocation});
}

void set_headroom(int device, int64_t bytes) {
  headroom.bytes[size_t(device)] = bytes;
}

// Pinned host memory, as CUDA's caching host allocator hands it out: blocks of a power of two, kept for the next
// request.

namespace {

struct Pinned {
  Lock lock;
  std::map<uintptr_t, std::pair<size_t, int64_t>> taken; // where it starts -> its size and number
  std::multimap<size_t, void*> kept;
  std::vector<size_t> chunks; // how much room each of the driver's has left
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

// The driver pins 2 MiB at a time: on an H200, the first 4 KiB took as long as the first 1 MiB, and the next ones 15 us,
// until their chunk was full. More than half a chunk has chunks of its own.
size_t pinned_anew(size_t size) {
  constexpr size_t chunk = 2 << 20;
  if (size > chunk / 2) return (size + chunk - 1) / chunk * chunk;
  auto& all = pinned();
  std::lock_guard guard(all.lock);
  for (auto& room : all.chunks)
    if (room >= size) return room -= size, 0;
  all.chunks.push_back(chunk - size);
  return chunk;
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, c10::detail::deleteNothing, c10::Device(c10::kCPU)};
    size_t size = c10::llvm::PowerOf2Ceil(bytes);
    void* pointer = kept_block(size);
    if (!pointer) {
      pointer = c10::GetCPUAllocator()->raw_allocate(size);
      write({.code = Code::PIN, .a = int64_t(pinned_anew(size)), .b = 1});
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

PinnedAllocator the_pinned_allocator;

} // namespace

c10::Allocator* pinned_allocator() {
  return &the_pinned_allocator;
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
