// Operators that make tensors without computing: empty ones, views, set_, resizes.
#include "kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>

namespace unstall {
namespace {

using c10::SymInt;
using c10::SymIntArrayRef;

at::IntArrayRef ints(SymIntArrayRef sizes) {
  return C10_AS_INTARRAYREF_SLOW(sizes);
}

c10::ScalarType type_of(std::optional<c10::ScalarType> dtype) {
  return dtype ? *dtype : c10::typeMetaToScalarType(at::get_default_dtype());
}

void check_pin(std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

Tensor empty(
    SymIntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device> device, std::optional<bool> pin, std::optional<c10::MemoryFormat> format) {
  check_pin(pin);
  OnDevice on_device(device_number(device.value_or(c10::Device(c10::kCUDA))));
  return at::detail::empty_generic(
      ints(sizes), device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA), type_of(dtype), format);
}

Tensor empty_strided(
    SymIntArrayRef sizes, SymIntArrayRef strides, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device> device, std::optional<bool> pin) {
  check_pin(pin);
  OnDevice on_device(device_number(device.value_or(c10::Device(c10::kCUDA))));
  return at::detail::empty_strided_generic(
      ints(sizes), ints(strides), device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA), type_of(dtype));
}

Tensor view(const Tensor& self, SymIntArrayRef sizes) {
  return at::native::view(self, ints(sizes));
}

Tensor as_strided(
    const Tensor& self, SymIntArrayRef sizes, SymIntArrayRef strides, std::optional<SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, ints(sizes), ints(strides), offset ? std::optional(offset->expect_int()) : std::nullopt);
}

Tensor reshape_alias(const Tensor& self, SymIntArrayRef sizes, SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, ints(sizes), ints(strides));
}

// The CPU's code for these allocates with the storage's own allocator: the device's.
const Tensor& resize_(const Tensor& self, SymIntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  OnDevice on_device(self.get_device());
  return at::native::resize_(self, ints(sizes), format);
}

Tensor& set_storage(Tensor& self, c10::Storage storage, SymInt offset, SymIntArrayRef sizes, SymIntArrayRef strides) {
  OnDevice on_device(self.get_device());
  return at::native::set_storage_cpu_(self, std::move(storage), offset.expect_int(), ints(sizes), ints(strides));
}

Tensor& set_whole_storage(Tensor& self, c10::Storage storage) {
  return at::native::set_(self, std::move(storage));
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return at::native::set_tensor_(self, source);
}

Tensor& set_nothing(Tensor& self) {
  OnDevice on_device(self.get_device());
  c10::Storage storage(new_storage(0));
  return at::native::set_storage_cpu_(self, std::move(storage), 0, {0}, {});
}

void record_stream(Tensor& self, c10::Stream stream) {
  use_on_stream(self.storage().data_ptr(), stream.id());
}

} // namespace

VIRTUAL_KERNELS(kernels) {
  kernels.impl("empty.memory_format", TORCH_FN(empty));
  kernels.impl("empty_strided", TORCH_FN(empty_strided));
  kernels.impl("view", TORCH_FN(view));
  kernels.impl("as_strided", TORCH_FN(as_strided));
  kernels.impl("_reshape_alias", TORCH_FN(reshape_alias));
  kernels.impl("resize_", TORCH_FN(resize_));
  kernels.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  kernels.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  kernels.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  kernels.impl("set_", TORCH_FN(set_nothing));
  kernels.impl("record_stream", TORCH_FN(record_stream));
}

} // namespace unstall
