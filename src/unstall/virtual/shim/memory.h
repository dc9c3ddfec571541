// Storages of the virtual devices: bytes of the CPU, each block with the number that the log knows it by.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include "log.h"

namespace unstall {

// What stands behind the data of a storage on a virtual device. The bytes belong to `cpu`, a storage that kernels of
// the CPU are given: so nothing is copied, and where they resize it, that is seen.
struct Block {
  c10::intrusive_ptr<c10::StorageImpl> cpu;
  int64_t allocation; // 0 for no bytes, for which CUDA allocates nothing
  int64_t bytes;
  int device;
  bool known = true; // values were computed: not so for what is large where numerics are skipped
};

// nullptr for memory that is not ours.
Block* block_of(const c10::StorageImpl& storage);

c10::Allocator* device_allocator();

// A storage on `device` over the bytes of one of the CPU; logs its MALLOC, and raises where the device is full.
c10::intrusive_ptr<c10::StorageImpl> storage_over(c10::intrusive_ptr<c10::StorageImpl> cpu, int device);

// Takes up what a kernel of the CPU did to the storage's bytes: where they are elsewhere now, as after a resize, there
// is a new allocation with what the old one held.
void follow_bytes(c10::StorageImpl& storage);

// UntypedStorage.resize_
void resize_bytes(c10::StorageImpl& storage, int64_t bytes);

void use_on_stream(const c10::DataPtr& data, int64_t stream);

void set_headroom(int device, int64_t bytes);

// Pinned host memory. Its ranges have negative numbers in the log.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);
// The number of the pinned block around `pointer` and how far into it that is; 0 where there is none.
std::pair<int64_t, int64_t> pinned_block(const void* pointer);

} // namespace unstall
