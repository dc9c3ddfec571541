#include "memory.h"

#include "asserts.h"
#include "devices.h"
#include "keeper.h"

#include <c10/core/CPUAllocator.h>

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <limits>

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

// The most by which reserved memory can grow for a request: CUDACachingAllocator's segment for it, by its default
// settings. For other ones the keeper gives less headroom.
int64_t worst_growth(int64_t bytes) {
  constexpr int64_t MIB = 1 << 20;
  int64_t rounded = (bytes + 511) / 512 * 512;
  if (rounded <= MIB) return 2 * MIB;
  if (rounded < 10 * MIB) return 20 * MIB;
  return (rounded + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

// Whether a request surely fits; if so, it has taken its room.
bool takes_room(int device, int64_t bytes) {
  auto& left = headroom.bytes[size_t(device)];
  if (left.load(std::memory_order_relaxed) == std::numeric_limits<int64_t>::max()) return true;
  return (left -= worst_growth(bytes)) >= 0;
}

void log_free(int device, int64_t allocation) {
  if (allocation) write({.code = Code::FREE, .device = device, .stream = current_stream(device), .a = allocation});
}

int64_t log_malloc(int device, int64_t bytes) {
  if (bytes == 0) return 0;
  bool fits = takes_room(device, bytes);
  int64_t allocation = ++allocations;
  write({.code = Code::MALLOC, .device = device, .stream = current_stream(device), .a = allocation, .b = bytes});
  if (fits) return allocation;
  try {
    make_room(device, bytes, allocation);
  } catch (const c10::OutOfMemoryError&) {
    throw; // nothing was allocated
  } catch (...) {
    log_free(device, allocation);
    throw;
  }
  return allocation;
}

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  log_free(block->device, block->allocation);
  delete block;
}

DataPtr data_of(Block* block) {
  void* data = block->cpu->mutable_data();
  return DataPtr(data, block, free_block, Device(c10::kCUDA, c10::DeviceIndex(block->device)));
}

// Memory that takes none until it is touched, and reads as 0: for storages whose values nobody computes.
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

// Where numerics are skipped, what holds more than the elements that are computed nevertheless, of 8 bytes.
bool is_lazy(size_t bytes) {
  return settings().skip && bytes > size_t(1) << 19;
}

c10::intrusive_ptr<StorageImpl> cpu_storage(size_t bytes) {
  c10::Allocator* allocator = is_lazy(bytes) ? &lazy_allocator : c10::GetCPUAllocator();
  return c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes, allocator, true);
}

struct DeviceAllocator final : c10::Allocator {
  DataPtr allocate(size_t bytes) override {
    int device = current_device();
    check_usable(device);
    int64_t allocation = log_malloc(device, int64_t(bytes)); // first: a device that is full needs no memory here
    return data_of(new Block{cpu_storage(bytes), allocation, int64_t(bytes), device, !is_lazy(bytes)});
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

DeviceAllocator the_allocator;
// Before torch asks for it: it does where a storage is made by device.
const bool registered = (c10::SetAllocator(c10::kCUDA, &the_allocator), true);

} // namespace

c10::Allocator* device_allocator() {
  return &the_allocator;
}

Block* block_of(const StorageImpl& storage) {
  const auto& data = storage.data_ptr();
  return data.get_deleter() == free_block ? static_cast<Block*>(data.get_context()) : nullptr;
}

c10::intrusive_ptr<StorageImpl> storage_over(c10::intrusive_ptr<StorageImpl> cpu, int device) {
  auto bytes = int64_t(cpu->nbytes());
  int64_t allocation = log_malloc(device, bytes);
  auto* block = new Block{std::move(cpu), allocation, bytes, device};
  return c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), bytes, data_of(block), &the_allocator, true);
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
  block->bytes = bytes;
  storage._mutable_data_ptr_no_checks().release_context(); // the block stays: only where its bytes are has changed
  storage.set_data_ptr_noswap(data_of(block));
  storage.set_nbytes(size_t(bytes));
}

void resize_bytes(StorageImpl& storage, int64_t bytes) {
  Block* block = block_of(storage);
  TORCH_CHECK(block, "Trying to resize storage that is not resizable");
  auto grown = cpu_storage(size_t(bytes));
  size_t held = size_t(std::min(block->bytes, bytes));
  if (held && block->known) std::memcpy(grown->mutable_data(), block->cpu->data(), held);
  block->cpu->set_data_ptr_noswap(std::move(grown->mutable_data_ptr()));
  block->cpu->set_nbytes(size_t(bytes));
  follow_bytes(storage);
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

} // namespace unstall
