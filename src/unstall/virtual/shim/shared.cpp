// Storages that several processes use: their bytes are in a file in memory (memfd_create), which a process opens by the
// number of the process that has it and of the descriptor there. So nothing is left behind by a process that is killed.
#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace unstall {
namespace {

using c10::DataPtr;
using c10::Device;
using c10::StorageImpl;

constexpr int64_t PAGE = 4096;

// How many storages of other processes use the bytes, or are about to: in the file, behind the bytes.
using Users = std::atomic<int64_t>;
static_assert(Users::is_always_lock_free);

struct Mapping {
  int descriptor; // -1: of another process
  char* bytes;
  int64_t size; // with the page of Users

  Users& users() const { return *reinterpret_cast<Users*>(bytes + size - PAGE); }
};

int64_t size_with_users(int64_t bytes) {
  return (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
}

char* map(int descriptor, int64_t size) {
  void* bytes = mmap(nullptr, size_t(size), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  TORCH_CHECK(bytes != MAP_FAILED, "the virtual GPU cannot share ", size, " bytes with other processes");
  return static_cast<char*>(bytes);
}

void drop(Mapping* mapping) {
  munmap(mapping->bytes, size_t(mapping->size));
  if (mapping->descriptor >= 0) close(mapping->descriptor);
  delete mapping;
}

// What this process freed while others use it, or are about to: kept, as torch does.
struct Kept {
  Lock lock;
  std::vector<Mapping*> mappings;
};

Kept& kept() {
  static auto* kept = new Kept;
  return *kept;
}

void drop_unused() {
  std::lock_guard guard(kept().lock);
  std::erase_if(kept().mappings, [](Mapping* mapping) {
    bool unused = mapping->users() <= 0;
    if (unused) drop(mapping);
    return unused;
  });
}

void give_up(void* context) {
  auto* mapping = static_cast<Mapping*>(context);
  if (mapping->descriptor < 0) {
    mapping->users()--;
    return drop(mapping);
  }
  {
    std::lock_guard guard(kept().lock);
    kept().mappings.push_back(mapping);
  }
  drop_unused();
}

DataPtr data_of(Mapping* mapping) {
  return {mapping->bytes, mapping, give_up, Device(c10::kCPU)};
}

Mapping* mapping_of(const StorageImpl& cpu) {
  const auto& data = cpu.data_ptr();
  return data.get_deleter() == give_up ? static_cast<Mapping*>(data.get_context()) : nullptr;
}

Mapping* open_mapping(int pid, int descriptor) {
  std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
  int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  TORCH_CHECK(
      opened >= 0, "CUDA error: invalid resource handle: the process that shared this tensor (", pid, ") has ended");
  struct stat about {};
  fstat(opened, &about);
  try {
    auto* mapping = new Mapping{-1, map(opened, about.st_size), about.st_size};
    close(opened);
    return mapping;
  } catch (...) {
    close(opened);
    throw;
  }
}

} // namespace

int share_bytes(StorageImpl& storage) {
  Block* block = block_of(storage);
  TORCH_CHECK(block, "only storages of a virtual GPU are shared between processes");
  drop_unused();
  Mapping* mapping = mapping_of(*block->cpu);
  if (!mapping) {
    int64_t size = size_with_users(block->bytes);
    int descriptor = memfd_create("unstall-virtual-gpu", MFD_CLOEXEC);
    TORCH_CHECK(
        descriptor >= 0 && ftruncate(descriptor, size) == 0, "the virtual GPU cannot share ", block->bytes,
        " bytes with other processes");
    mapping = new Mapping{descriptor, map(descriptor, size), size};
    move_bytes(storage, data_of(mapping));
  }
  TORCH_CHECK(
      mapping->descriptor >= 0,
      "Attempted to send CUDA tensor received from another process; this is not currently supported. Consider cloning "
      "before sending.");
  mapping->users()++;
  return mapping->descriptor;
}

c10::intrusive_ptr<StorageImpl> storage_over_shared(int pid, int descriptor, int64_t bytes, int device) {
  auto cpu = c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), bytes, data_of(open_mapping(pid, descriptor)), nullptr, false);
  return storage_of_others(std::move(cpu), device);
}

void release_shared(int pid, int descriptor) {
  give_up(open_mapping(pid, descriptor));
}

} // namespace unstall
