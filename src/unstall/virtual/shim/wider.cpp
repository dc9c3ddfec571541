#include "wider.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace unstall {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

void run(const c10::OperatorHandle& op, const Substitute* substitute, c10::DispatchKeySet keys, Stack* stack) {
  if (substitute) substitute->kernel.callBoxed(op, keys, stack);
  else op.redispatchBoxed(keys, stack);
}

bool is_half(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

// Halves of one call as float32, and back.
class Widened {
 public:
  IValue wider(const IValue& value) {
    if (value.isTensor()) return wider(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& one : value.toTensorVector()) list.push_back(wider(one));
      return list;
    }
    return value;
  }
  bool any() const { return !pairs_.empty(); }

  // What the kernel wrote into arguments that it may write to.
  void write_back() {
    for (auto& [half, wide] : pairs_) {
      half.resize_(wide.sizes());
      half.copy_(wide);
    }
  }
  Tensor narrower(const Tensor& result) const {
    for (const auto& [half, wide] : pairs_)
      if (wide.is_same(result)) return half;
    return result.defined() && result.scalar_type() == at::kFloat ? result.to(type_) : result;
  }

 private:
  Tensor wider(const Tensor& tensor) {
    if (!tensor.defined() || !is_half(tensor.scalar_type())) return tensor;
    type_ = tensor.scalar_type();
    pairs_.emplace_back(tensor, tensor.to(at::kFloat));
    return pairs_.back().second;
  }

  std::vector<std::pair<Tensor, Tensor>> pairs_; // halves, and the same as float32
  at::ScalarType type_ = at::kHalf;
};

} // namespace

void run_kernel(
    const c10::OperatorHandle& op, const Substitute* substitute, c10::DispatchKeySet keys, Stack* stack) {
  const auto& schema = op.schema();
  size_t count = schema.arguments().size(), first = stack->size() - count;
  std::vector<IValue> arguments(stack->begin() + int64_t(first), stack->end());
  try {
    run(op, substitute, keys, stack);
    return;
  } catch (const c10::NotImplementedError&) {
    Widened widened;
    stack->resize(first);
    for (const IValue& argument : arguments) stack->push_back(widened.wider(argument));
    if (!widened.any()) throw;
    run(op, substitute, keys, stack);
    if (schema.is_mutable()) widened.write_back();
    for (size_t i = first; i < stack->size(); i++) {
      IValue& value = (*stack)[i];
      if (value.isTensor()) value = widened.narrower(value.toTensor());
    }
  }
}

} // namespace unstall
