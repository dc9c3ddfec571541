#include "shapes.h"

#include "locks.h"
#include "twins.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_set>

namespace unstall {

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
  Tensor made = at::detail::empty_strided_generic(
      meta.sizes(), meta.strides(), device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      meta.scalar_type());
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

bool known(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return true;
  Block* block = block_of(*tensor.storage().unsafeGetStorageImpl());
  return !block || block->known;
}

void set_known(const Tensor& tensor, bool known) {
  if (!tensor.defined() || !tensor.is_cuda()) return;
  if (Block* block = block_of(*tensor.storage().unsafeGetStorageImpl())) block->known = known;
}

bool covers_storage(const Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && size_t(tensor.nbytes()) == tensor.storage().nbytes();
}

void warn_unknown() {
  static Lock lock;
  static auto* warned = new std::unordered_set<int32_t>;
  int32_t here = stack_here();
  {
    std::lock_guard guard(lock);
    if (!warned->insert(here).second) return;
  }
  TORCH_WARN(
      "the virtual GPU skips numerics, and a value that was not computed is read here: it is 0. Where the program "
      "depends on it, run it with numerics=\"real\"");
}

} // namespace unstall
