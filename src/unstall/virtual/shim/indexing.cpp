// Operators that CUDA makes of others, which the log must show: nonzero(), which waits, turns masks into indices.
#include "kernels.h"
#include "substitutes.h"
#include "tensors.h"

#include <ATen/core/List.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>

namespace unstall {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

Tensor& zero_(Tensor& self) {
  return self.fill_(0);
}

bool is_same_view(const Tensor& self, const Tensor& other) {
  return self.is_alias_of(other) && self.storage_offset() == other.storage_offset() && self.dtype() == other.dtype() &&
      self.strides().equals(other.strides()) && self.layout() == other.layout() && self.is_neg() == other.is_neg() &&
      self.is_conj() == other.is_conj();
}

// As at::native::cuda_equal (torch 2.11) does it. Of a tensor and itself it is true, nan or not.
bool equal(const Tensor& self, const Tensor& other) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0 || is_same_view(self, other)) return true;
  return self.eq(other).all().item().to<bool>();
}

c10::List<std::optional<Tensor>> with_indices_for_masks(const Tensor& self, const c10::IValue& given) {
  c10::List<std::optional<Tensor>> indices;
  for (const Tensor& index : at::native::expandTensors(self, optional_tensors(given), true))
    indices.push_back(index.defined() ? std::optional(index) : std::nullopt);
  return indices;
}

constexpr size_t PUTS = 5; // the arguments of index_put: self, indices, values, accumulate, unsafe

// index and index_put: the arguments `self` and `self` + 1 are the indexed tensor and its indices.
template <size_t arguments>
void indexed(const OperatorHandle& op, Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  size_t self = stack->size() - arguments;
  Tensor tensor = (*stack)[self].toTensor();
  if (arguments != PUTS)
    for (const std::optional<Tensor>& index : optional_tensors((*stack)[self + 1]))
      TORCH_CHECK(
          !tensor.is_cpu() || !index || !index->defined() || index->is_cpu(),
          "indices should be either on cpu or on the same device as the indexed tensor (cpu)");
  (*stack)[self + 1] = with_indices_for_masks(tensor, (*stack)[self + 1]);
  redirect(op, stack);
}

// self[mask] = number, with one mask and a number of the host, is masked_fill_: native::canDispatchToMaskedFill.
Tensor mask_to_fill(const Tensor& self, const c10::List<std::optional<Tensor>>& indices, const Tensor& value) {
  if (value.numel() != 1 || !value.is_cpu()) return {};
  Tensor mask;
  int64_t dims = 0;
  for (const std::optional<Tensor>& index : indices) {
    if (!index || !index->defined()) {
      dims++;
      continue;
    }
    bool masks = index->scalar_type() == at::kBool || index->scalar_type() == at::kByte;
    if (!masks || mask.defined() || dims + index->dim() > self.dim()) return {};
    for (int64_t i = 0; i < index->dim(); i++)
      if (index->size(i) != self.size(dims + i)) return {};
    mask = *index;
    dims += index->dim();
  }
  for (; mask.defined() && dims < self.dim(); dims++) mask = mask.unsqueeze(-1);
  return mask;
}

void index_put(const OperatorHandle& op, Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  size_t first = stack->size() - PUTS;
  Tensor self = (*stack)[first].toTensor(), value = (*stack)[first + 2].toTensor();
  if (!(*stack)[first + 3].toBool()) {
    Tensor mask = mask_to_fill(self, optional_tensors((*stack)[first + 1]), value);
    if (mask.defined()) {
      self.masked_fill_(mask.device() == self.device() ? mask : mask.to(self.device()), value.item());
      stack->erase(stack->end() - PUTS, stack->end());
      stack->emplace_back(self);
      return;
    }
  }
  if (value.is_cpu() && value.dim() == 0) (*stack)[first + 2] = value.to(self.device());
  indexed<PUTS>(op, stack);
}

// Of shapes alone, nobody knows how many elements there are.
Tensor nonzero(const Tensor& self) {
  if (!self.is_meta()) return at::nonzero(self);
  return at::empty({self.dim(), assumed_found(self.numel())}, self.options().dtype(at::kLong)).t();
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  if (!self.is_meta()) return at::masked_select(self, mask);
  auto sizes = at::infer_size(self.sizes(), mask.sizes());
  return at::empty({assumed_found(c10::multiply_integers(sizes))}, self.options());
}

} // namespace

SUBSTITUTES(list) {
  list.add("nonzero", &nonzero);
  list.add("masked_select", &masked_select);
}

VIRTUAL_KERNELS(kernels) {
  kernels.impl("zero_", TORCH_FN(zero_));
  kernels.impl("equal", TORCH_FN(equal));
  kernels.impl("index.Tensor", torch::CppFunction::makeFromBoxedFunction<&indexed<2>>());
  kernels.impl("index.Tensor_out", torch::CppFunction::makeFromBoxedFunction<&indexed<3>>());
  kernels.impl("_index_put_impl_", torch::CppFunction::makeFromBoxedFunction<&index_put>());
}

} // namespace unstall
