// Storages of the virtual devices: bytes of the CPU, each block with its number in the log; and pinned host memory.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <memory>

#include "log.h"

namespace unstall {

// Where a storage's values come from. MISSING: they were not computed, as those of large tensors are not if numerics are
// skipped; the program reads them as 0. ASSUMED: they follow from missing ones, taken to be 0.
enum class Origin : uint8_t { COMPUTED, ASSUMED, MISSING };
// A graph's nodes share it.
using Known = std::shared_ptr<Origin>;

// Behind the data of a storage on a virtual device. The bytes belong to `cpu`, the storage that the CPU's kernels get:
// so nothing is copied, and a resize by a kernel is seen.
struct Block {
  c10::intrusive_ptr<c10::StorageImpl> cpu;
  int64_t allocation; // 0 for no bytes, for which CUDA allocates nothing
  int64_t bytes;
  int device;
  int64_t graph = 0; // the graph whose capture allocated it; 0 if none did, and for the results of a kernel of the CPU
  Known known; // if numerics are skipped; nullptr if all are computed so far

  Origin origin() const { return known ? *known : Origin::COMPUTED; }
};

// nullptr for memory that is not ours.
Block* block_of(const c10::StorageImpl& storage);

c10::Allocator* device_allocator();
// A storage on the current device.
c10::intrusive_ptr<c10::StorageImpl> new_storage(size_t bytes);

// A storage on `device` over the bytes of a CPU storage; logs its MALLOC, and raises if the device is full.
c10::intrusive_ptr<c10::StorageImpl> storage_over(c10::intrusive_ptr<c10::StorageImpl> cpu, int device);

// After a CPU kernel: if it moved the storage's bytes, as a resize does, logs a new allocation that holds the old
// content.
void follow_bytes(c10::StorageImpl& storage);

// UntypedStorage.resize_
void resize_bytes(c10::StorageImpl& storage, int64_t bytes);

// Copies a storage's bytes to `data`, and has the storage use that. Logs nothing. Waits for threads that compute: the GIL
// may not be held.
void move_bytes(c10::StorageImpl& storage, c10::DataPtr data);

// A storage on `device` over bytes that another process allocated there. Logs nothing.
c10::intrusive_ptr<c10::StorageImpl> storage_of_others(c10::intrusive_ptr<c10::StorageImpl> cpu, int device);

// Storages that several processes use, as cudaIpcGetMemHandle and cudaIpcOpenMemHandle make them. The bytes are in a file
// in memory, which other processes open by the number of this process and of its descriptor here.
//
// Moves a storage's bytes to such a file, and counts one more process that is about to use it. Returns the descriptor.
int share_bytes(c10::StorageImpl& storage);
// A storage on `device` over the bytes that process `pid` shares by `descriptor`.
c10::intrusive_ptr<c10::StorageImpl> storage_over_shared(int pid, int descriptor, int64_t bytes, int device);
// One process less is about to use these bytes.
void release_shared(int pid, int descriptor);

void use_on_stream(const c10::DataPtr& data, int64_t stream);

void set_headroom(int device, int64_t bytes);

// Writes the LAUNCH of an operator whose own memory, beside its results, can make reserved memory grow by `growth`.
// Raises c10::OutOfMemoryError if the device has no room for that memory.
void log_launch(Entry entry, int64_t growth);

// Pinned host memory. Its ranges have negative numbers in the log.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);
// The number of the pinned block around `pointer`, and the offset in it; 0 if there is none.
std::pair<int64_t, int64_t> pinned_block(const void* pointer);

} // namespace unstall
