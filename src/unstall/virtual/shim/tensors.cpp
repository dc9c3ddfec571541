#include "tensors.h"

#include "devices.h"
#include "log.h"
#include "memory.h"
#include "places.h"
#include "simulator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace unstall {
namespace {

// On the other device type, with the same bits for values that are to be negated, conjugated, or are all 0.
Tensor like(const Tensor& tensor, c10::Storage storage, c10::DispatchKey backend) {
  auto* impl = tensor.unsafeGetTensorImpl();
  auto lazy = impl->key_set() &
      c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(backend) | lazy, impl->dtype());
  auto* made_impl = made.unsafeGetTensorImpl();
  made_impl->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (impl->is_wrapped_number()) made_impl->set_wrapped_number(true);
  return made;
}

c10::intrusive_ptr<c10::StorageImpl> foreign(c10::StorageImpl* storage) {
  c10::DataPtr data(storage->mutable_data(), c10::Device(c10::kCPU));
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage->nbytes(), std::move(data), nullptr, false);
}

void refuse_layout(const Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested(),
      "the virtual GPU computes dense tensors only, not ",
      tensor.is_quantized() ? "quantized" : tensor.is_nested() ? "nested" : "sparse", " ones");
}

} // namespace

bool is_list_of_tensors(const c10::IValue& value) {
  if (value.isTensorList() || value.isOptionalTensorList()) return true;
  if (!value.isList() || value.isIntList()) return false;
  return value.toList().elementType()->isSubtypeOf(*c10::OptionalType::ofTensor());
}

c10::List<std::optional<Tensor>> optional_tensors(const c10::IValue& value) {
  c10::List<std::optional<Tensor>> list;
  for (const c10::IValue& one : value.toListRef())
    list.push_back(one.isTensor() ? std::optional<Tensor>(one.toTensor()) : std::nullopt);
  return list;
}

Tensor to_cpu(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  refuse_layout(tensor);
  auto* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  Block* block = block_of(*storage);
  return like(tensor, block ? c10::Storage(block->cpu) : c10::Storage(foreign(storage)), c10::DispatchKey::CPU);
}

Tensor over(const Tensor& cpu, c10::Storage storage) {
  return like(cpu, std::move(storage), c10::DispatchKey::CUDA);
}

Tensor to_cuda(const Tensor& cpu, int device) {
  if (!cpu.defined() || !cpu.is_cpu()) return cpu;
  refuse_layout(cpu);
  const auto& storage = cpu.unsafeGetTensorImpl()->unsafe_storage();
  auto held = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl());
  return over(cpu, c10::Storage(storage_over(std::move(held), device)));
}

Tensor empty_as(const Tensor& cpu, int device) {
  refuse_layout(cpu);
  OnDevice on_device(device);
  return over(cpu, c10::Storage(new_storage(cpu.storage().nbytes())));
}

void follow(const Tensor& cuda, const Tensor& cpu) {
  auto* impl = cuda.unsafeGetTensorImpl();
  auto* cpu_impl = cpu.unsafeGetTensorImpl();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  Block* block = block_of(*storage);
  if (!block) return;
  auto* bytes = cpu_impl->unsafe_storage().unsafeGetStorageImpl();
  if (bytes != block->cpu.get()) {
    auto held = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(bytes);
    impl->set_storage_keep_dtype(c10::Storage(storage_over(std::move(held), block->device)));
  } else {
    follow_bytes(*storage);
  }
  if (impl->sizes() != cpu_impl->sizes() || impl->strides() != cpu_impl->strides() ||
      impl->storage_offset() != cpu_impl->storage_offset())
    impl->set_sizes_and_strides(cpu_impl->sizes(), cpu_impl->strides(), cpu_impl->storage_offset());
}

Tensor to_meta(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return tensor;
  if (tensor.is_cpu() && tensor.dim() == 0) return tensor;
  auto meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.is_conj()) meta._set_conj(true);
  if (tensor.is_neg()) meta._set_neg(true);
  return meta;
}

Tensor from_meta(const Tensor& meta, int device) {
  if (!meta.defined() || !meta.is_meta()) return meta;
  OnDevice on_device(device);
  size_t bytes = at::detail::computeStorageNbytes(meta.sizes(), meta.strides(), meta.itemsize());
  // If a kernel shrinks its result, as mse_loss does, the memory of the larger result stays.
  const c10::Storage& storage = meta.storage();
  if (storage.use_count() == 1) bytes = std::max(bytes, storage.nbytes());
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(new_storage(bytes)), c10::DispatchKeySet(c10::DispatchKey::CUDA), meta.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
  if (meta.is_conj()) made._set_conj(true);
  if (meta.is_neg()) made._set_neg(true);
  return made;
}

void follow_meta(const Tensor& cuda, const Tensor& meta) {
  if (cuda.sizes() == meta.sizes() && cuda.strides() == meta.strides()) return;
  auto* impl = cuda.unsafeGetTensorImpl();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  auto needed = int64_t(at::detail::computeStorageNbytes(
      meta.sizes(), meta.strides(), meta.itemsize(), size_t(impl->storage_offset())));
  if (needed > int64_t(storage->nbytes())) resize_bytes(*storage, needed);
  impl->set_sizes_and_strides(meta.sizes(), meta.strides(), impl->storage_offset());
}

namespace {

Block* block_behind(const Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() ? block_of(*tensor.storage().unsafeGetStorageImpl()) : nullptr;
}

} // namespace

Known known_of(const Tensor& tensor) {
  Block* block = block_behind(tensor);
  if (block && !block->known) block->known = std::make_shared<Origin>(Origin::COMPUTED);
  return block ? block->known : nullptr;
}

Origin origin_of(const Tensor& tensor) {
  Block* block = block_behind(tensor);
  return block ? block->origin() : Origin::COMPUTED;
}

bool known(const Tensor& tensor) {
  return origin_of(tensor) == Origin::COMPUTED;
}

void set_known(const Tensor& tensor, bool known) {
  if (Known of = known_of(tensor)) *of = known ? Origin::COMPUTED : Origin::MISSING;
}

void was_written(const Tensor& tensor, Origin origin) {
  if (Known of = known_of(tensor)) was_written(of, covers_storage(tensor), origin);
}

void was_written(const Known& storage, bool whole, Origin origin) {
  *storage = whole ? origin : std::max(*storage, origin);
}

bool covers_storage(const Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && size_t(tensor.nbytes()) == tensor.storage().nbytes();
}

namespace {

void warn_here(Places& places, const char* message) {
  if (auto here = places.add_here()) warn_at(*here, message);
}

Places& reads_of_unknown() {
  static auto* places = new Places;
  return *places;
}

Places& searches_of_unknown() {
  static auto* places = new Places;
  return *places;
}

} // namespace

void warn_unknown() {
  warn_here(
      reads_of_unknown(),
      "the virtual GPU skips numerics, and a value that was not computed is read here: it is 0, and comparisons with "
      "it may be wrong. If the program depends on it, compute it: --numerics real, or numerics=\"real\"");
}

std::vector<int32_t> unknown_reads() {
  return reads_of_unknown().stacks();
}

int64_t assumed_found(int64_t elements) {
  constexpr int64_t MOST_SEARCHES = 20000; // at one place; some models search for each expert of each layer
  static Lock lock;
  static auto* searches = new std::unordered_map<int32_t, int64_t>;
  int32_t here = stack_here();
  std::lock_guard guard(lock);
  return ++(*searches)[here] > MOST_SEARCHES ? 0 : elements / 2;
}

void warn_assumed() {
  warn_here(
      searches_of_unknown(),
      "the virtual GPU skips numerics, and values that were not computed are searched here: half of the elements are "
      "taken to be found. If the program depends on it, compute them: --numerics real, or numerics=\"real\"");
}

std::vector<int32_t> assumed_finds() {
  return searches_of_unknown().stacks();
}

} // namespace unstall
