// Tensors of the virtual GPU as the CPU's kernels want them, and back.
#include "twins.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

namespace unstall {
namespace {

// On the other device type: with the bits that say that values are to be negated, conjugated, or are all 0.
Tensor like(const Tensor& tensor, c10::Storage storage, c10::DispatchKey backend) {
  auto* impl = tensor.unsafeGetTensorImpl();
  auto lazy = impl->key_set() &
      c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(backend) | lazy, impl->dtype());
  auto* twin = made.unsafeGetTensorImpl();
  twin->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (impl->is_wrapped_number()) twin->set_wrapped_number(true);
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

void follow(const Tensor& cuda, const Tensor& cpu) {
  auto* impl = cuda.unsafeGetTensorImpl();
  auto* twin = cpu.unsafeGetTensorImpl();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  Block* block = block_of(*storage);
  if (!block) return;
  auto* bytes = twin->unsafe_storage().unsafeGetStorageImpl();
  if (bytes != block->cpu.get()) {
    auto held = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(bytes);
    impl->set_storage_keep_dtype(c10::Storage(storage_over(std::move(held), block->device)));
  } else {
    follow_bytes(*storage);
  }
  if (impl->sizes() != twin->sizes() || impl->strides() != twin->strides() ||
      impl->storage_offset() != twin->storage_offset())
    impl->set_sizes_and_strides(twin->sizes(), twin->strides(), twin->storage_offset());
}

Use use_of(const Tensor& tensor, bool write) {
  Use use{};
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return use;
  auto* impl = tensor.unsafeGetTensorImpl();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  int64_t size = int64_t(impl->itemsize()), extent = 1;
  for (int64_t i = 0; i < impl->dim(); i++) extent += (impl->size(i) - 1) * impl->stride(i);
  use.offset = impl->storage_offset() * size;
  use.bytes = extent * size;
  use.write = write;
  if (Block* block = block_of(*storage)) {
    use.allocation = block->allocation;
  } else if (tensor.is_cpu()) {
    auto [number, into] = pinned_block(storage->data());
    use.allocation = number;
    use.offset += into;
  }
  return use;
}

void Launch::use(const Tensor& tensor, bool write) {
  Use use = use_of(tensor, write);
  if (use.allocation) uses_.push_back(use);
}

void Launch::input(const c10::IValue& value, bool written) {
  signature_.add(value);
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().is_cuda()) use(value.toTensor(), written);
  } else if (value.isList()) {
    for (const auto& one : value.toListRef())
      if (one.isTensor() && one.toTensor().defined() && one.toTensor().is_cuda()) use(one.toTensor(), written);
  }
}

void Launch::output(const Tensor& tensor) {
  if (!in_outputs_) signature_.outputs();
  in_outputs_ = true;
  signature_.add(tensor);
  use(tensor, true);
}

void Launch::log() {
  if (!in_outputs_) signature_.outputs();
  in_outputs_ = true;
  write({.code = Code::LAUNCH, .device = device_, .stream = current_stream(device_), .id = signature_.number(),
         .uses = uses_.data(), .use_count = uses_.size()});
}

void log_read(int device, int64_t bytes) {
  int64_t stream = current_stream(device);
  write({.code = Code::COPY, .device = device, .stream = stream, .a = bytes, .b = -1,
         .flags = uint8_t(D2H | READS_VALUE)});
  sync_stream(device, stream);
}

} // namespace unstall
