#include "call.h"

#include "lacking_types.h"
#include "log.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <set>
#include <string>
#include <tuple>
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

bool holds_halves(const IValue& value, at::ScalarType& type) {
  auto see = [&](const Tensor& tensor) {
    if (!tensor.defined() || !is_half(tensor.scalar_type())) return false;
    type = tensor.scalar_type();
    return true;
  };
  if (value.isTensor()) return see(value.toTensor());
  if (!value.isTensorList()) return false;
  bool any = false;
  for (const auto& one : value.toListRef()) any = see(one.toTensor()) || any;
  return any;
}

// Halves of one call as float32, and back.
class Widened {
 public:
  explicit Widened(at::ScalarType type) : type_(type) {}

  IValue wider(const IValue& value, bool written) {
    if (value.isTensor()) return wider(value.toTensor(), written);
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& one : value.toTensorVector()) list.push_back(wider(one, written));
      return list;
    }
    return value;
  }

  // Only what the kernel wrote.
  void write_back() {
    for (auto& pair : pairs_) {
      if (!pair.written) continue;
      if (pair.half.sizes() != pair.wide.sizes()) pair.half.resize_(pair.wide.sizes());
      pair.half.copy_(pair.wide);
    }
  }
  Tensor narrower(const Tensor& result) const {
    for (const auto& pair : pairs_)
      if (pair.wide.is_same(result)) return pair.half;
    return result.defined() && result.scalar_type() == at::kFloat ? result.to(type_) : result;
  }

 private:
  struct Pair {
    Tensor half, wide;
    bool written;
  };

  Tensor wider(const Tensor& tensor, bool written) {
    if (!tensor.defined() || !is_half(tensor.scalar_type())) return tensor;
    pairs_.push_back({tensor, tensor.to(at::kFloat), written});
    return pairs_.back().wide;
  }

  std::vector<Pair> pairs_;
  at::ScalarType type_; // of results
};

// Operators whose kernels lack a type of halves.
struct LackHalves {
  Lock lock;
  std::set<std::tuple<std::string, std::string, at::ScalarType>> known;
};

LackHalves& lack_halves() {
  static auto* all = new LackHalves;
  return *all;
}

bool is_lacking(const c10::OperatorName& name, at::ScalarType type) {
  std::lock_guard guard(lack_halves().lock);
  return lack_halves().known.count({name.name, name.overload_name, type}) != 0;
}

// AT_DISPATCH's macros check the type before the kernel does anything.
bool says_lacking(const c10::NotImplementedError& error, at::ScalarType type) {
  const auto lacking = Lacking::of(error);
  return lacking && lacking->type == c10::toString(type);
}

// Products. The CPU's kernels for float16 convert each element anew where it is used: a product of 1024^3 took 40 times
// as long as one in float32. Both add in float32, and this rounds once. For bfloat16 the CPU has fast kernels.
bool is_product(const c10::OperatorName& name) {
  static const std::set<std::string_view> names{
      "aten::mm",    "aten::bmm", "aten::addmm", "aten::baddbmm",     "aten::addbmm",      "aten::_addmm_activation",
      "aten::mv",    "aten::dot", "aten::addmv", "aten::convolution", "aten::convolution_backward",
      "aten::linear"};
  return names.count(name.name) != 0;
}

} // namespace

void run_wider(
    const c10::OperatorHandle& op, const Substitute* substitute, c10::DispatchKeySet keys, Stack* stack,
    at::ScalarType type) {
  const auto& arguments = op.schema().arguments();
  size_t first = stack->size() - arguments.size();
  Widened widened(type);
  for (size_t i = 0; i < arguments.size(); i++) {
    const auto* alias = arguments[i].alias_info();
    (*stack)[first + i] = widened.wider((*stack)[first + i], alias && alias->isWrite());
  }
  run(op, substitute, keys, stack);
  widened.write_back();
  for (size_t i = first; i < stack->size(); i++) {
    IValue& value = (*stack)[i];
    if (value.isTensor()) value = widened.narrower(value.toTensor());
  }
}

namespace {

void run_wider_if_needed(
    const c10::OperatorHandle& op, const Substitute* substitute, c10::DispatchKeySet keys, Stack* stack) {
  size_t first = stack->size() - op.schema().arguments().size();
  at::ScalarType type = at::kFloat;
  for (size_t i = first; i < stack->size(); i++) holds_halves((*stack)[i], type);
  if (type == at::kFloat) return run(op, substitute, keys, stack);
  bool slow = type == at::kHalf && !keys.has(c10::DispatchKey::Meta) && is_product(op.operator_name());
  if (slow || is_lacking(op.operator_name(), type)) return run_wider(op, substitute, keys, stack, type);
  std::vector<IValue> arguments(stack->begin() + int64_t(first), stack->end());
  try {
    run(op, substitute, keys, stack);
    return;
  } catch (const c10::NotImplementedError& error) {
    if (!says_lacking(error, type)) throw;
  }
  stack->resize(first);
  stack->insert(stack->end(), arguments.begin(), arguments.end());
  run_wider(op, substitute, keys, stack, type);
  std::lock_guard guard(lack_halves().lock);
  lack_halves().known.insert({op.operator_name().name, op.operator_name().overload_name, type});
}

} // namespace

void run_kernel(
    const c10::OperatorHandle& op, const Substitute* substitute, c10::DispatchKeySet keys, Stack* stack) {
  try {
    run_wider_if_needed(op, substitute, keys, stack);
  } catch (const c10::NotImplementedError& error) {
    const auto lacking = Lacking::of(error);
    if (!lacking) throw;
    raise_as_cuda(op.operator_name(), *lacking);
  }
}

} // namespace unstall
