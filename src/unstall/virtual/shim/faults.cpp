#include "faults.h"

#include "kernels.h"

#include <ATen/ops/embedding_native.h>
#include <ATen/ops/sum.h>
#include <c10/util/ScopeExit.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <limits>
#include <utility>

namespace unstall {
namespace {

using c10::IValue;

// One call's arguments by their names in the schema.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, c10::ArrayRef<IValue> values) : schema_(op.schema()), values_(values) {}

  const IValue* find(const char* name) const {
    for (size_t i = 0; i < values_.size(); i++)
      if (schema_.arguments()[i].name() == name) return &values_[i];
    return nullptr;
  }
  Tensor tensor(const char* name) const {
    const IValue* value = find(name);
    return value && value->isTensor() ? to_cpu(value->toTensor()) : Tensor();
  }
  std::optional<int64_t> number(const char* name) const {
    const IValue* value = find(name);
    return value && value->isInt() ? std::optional(value->toInt()) : std::nullopt;
  }

  // Calls see(name, tensor) for each tensor; those of lists are called indices[0] and so on.
  template <class F>
  void each(F&& see) const {
    for (size_t i = 0; i < values_.size(); i++) {
      const std::string& name = schema_.arguments()[i].name();
      const IValue& value = values_[i];
      if (value.isTensor() && value.toTensor().defined()) see(name, value.toTensor());
      if (!is_list_of_tensors(value)) continue;
      size_t place = 0;
      for (const auto& one : value.toListRef()) {
        if (one.isTensor() && one.toTensor().defined()) see(name + "[" + std::to_string(place) + "]", one.toTensor());
        place++;
      }
    }
  }

 private:
  const c10::FunctionSchema& schema_;
  c10::ArrayRef<IValue> values_;
};

// The indices that the program gave to an operator which flattens them for the kernel that checks them, while that
// operator runs on this thread.
thread_local const Tensor* given = nullptr;

Tensor embedding(
    const Tensor& weight, const Tensor& indices, c10::SymInt padding_idx, bool scale_grad_by_freq, bool sparse) {
  const Tensor* before = std::exchange(given, &indices);
  auto restored = c10::make_scope_exit([before] { given = before; });
  return at::native::embedding_symint(weight, indices, std::move(padding_idx), scale_grad_by_freq, sparse);
}

std::vector<int64_t> position_of(int64_t flat, c10::IntArrayRef sizes) {
  std::vector<int64_t> position(sizes.size());
  for (size_t dim = sizes.size(); dim-- > 0;) {
    position[dim] = flat % sizes[dim];
    flat /= sizes[dim];
  }
  return position;
}

// The shape in which the program knows the values of a kernel's argument.
c10::IntArrayRef shape_of(const Tensor& values) {
  bool flattened = given && values.dim() == 1 && given->scalar_type() == values.scalar_type() &&
      given->numel() == values.numel();
  return flattened ? given->sizes() : values.sizes();
}

template <class T, class F>
std::optional<WrongValue> first_wrong(const std::string& argument, const Tensor& values, F&& is_wrong) {
  if (!values.defined()) return std::nullopt;
  Tensor whole = values.to(c10::CppTypeToScalarType<T>::value).contiguous();
  const T* at = whole.template const_data_ptr<T>();
  WrongValue wrong{.argument = argument, .of = whole.numel()};
  for (int64_t i = 0; i < whole.numel(); i++) {
    if (!is_wrong(at[i])) continue;
    if (!wrong.count++) {
      wrong.value = at[i];
      wrong.position = position_of(i, shape_of(values));
    }
  }
  return wrong.count ? std::optional(wrong) : std::nullopt;
}

constexpr int64_t NONE = std::numeric_limits<int64_t>::min();

// `also_right`: a value that is right although it is out of bounds.
std::optional<WrongValue> out_of_bounds(
    const std::string& argument, const Tensor& values, int64_t least, int64_t bound, int64_t also_right = NONE) {
  auto wrong = first_wrong<int64_t>(
      argument, values, [&](int64_t value) { return (value < least || value >= bound) && value != also_right; });
  if (wrong) {
    wrong->least = least;
    wrong->bound = bound;
  }
  return wrong;
}

int64_t size_of(const Tensor& tensor, int64_t dim) {
  return tensor.dim() ? tensor.size(dim) : 1;
}

std::optional<WrongValue> wrong_index(const Arguments& of) {
  Tensor self = of.tensor("self"), weight = of.tensor("weight"), index = of.tensor("index");
  if (const IValue* list = of.find("indices"); list && is_list_of_tensors(*list)) {
    auto dims = optional_tensors(*list).vec();
    for (size_t dim = 0; dim < dims.size(); dim++) {
      if (!dims[dim] || !dims[dim]->defined()) continue;
      int64_t bound = self.size(int64_t(dim));
      auto wrong =
          out_of_bounds("indices[" + std::to_string(dim) + "]", to_cpu(*dims[dim]), -bound, bound);
      if (wrong) return wrong;
    }
    return std::nullopt;
  }
  if (weight.defined() && of.find("offsets")) return out_of_bounds("indices", of.tensor("indices"), 0, weight.size(0));
  if (const IValue* sizes = of.find("output_size"); sizes && sizes->isIntList()) {
    int64_t bound = 1;
    for (int64_t size : sizes->toIntVector()) bound *= size;
    return out_of_bounds("indices", of.tensor("indices"), 0, bound);
  }
  if (!self.defined() || !index.defined()) return std::nullopt;
  if (auto dim = of.number("dim")) return out_of_bounds("index", index, 0, size_of(self, *dim));
  return out_of_bounds("index", index, -self.numel(), self.numel()); // take and put_
}

std::optional<WrongValue> wrong_class(const Arguments& of) {
  Tensor self = of.tensor("self"), target = of.tensor("target");
  if (!self.defined() || !target.defined()) return std::nullopt;
  auto ignored = of.number("ignore_index");
  bool of_images = self.dim() == 4 && ignored; // nll_loss2d
  int64_t classes = size_of(self, of_images ? 1 : -1);
  return out_of_bounds("target", target, 0, classes, ignored.value_or(of.find("margin") ? NONE : -1));
}

bool is_no_probability(double value) {
  return !(value >= 0 && value <= 1);
}

std::optional<WrongValue> wrong_probability(const Arguments& of) {
  const char* first = of.find("p") ? "p" : "self"; // bernoulli_ overwrites self
  auto wrong = first_wrong<double>(first, of.tensor(first), is_no_probability);
  return wrong ? wrong : first_wrong<double>("target", of.tensor("target"), is_no_probability);
}

std::optional<WrongValue> wrong_weight(const Arguments& of) {
  Tensor self = of.tensor("self");
  auto wrong = first_wrong<double>("self", self, [](double value) { return !(value >= 0 && std::isfinite(value)); });
  if (wrong || !self.defined()) return wrong;
  return first_wrong<double>("self.sum(-1)", self.to(at::kDouble).sum(-1), [](double sum) { return !(sum > 0); });
}

std::optional<WrongValue> wrong_value(const std::string& kernel, const Arguments& of) {
  auto begins = [&](const char* text) { return kernel.rfind(text, 0) == 0; };
  if (begins("aten::nll_loss") || begins("aten::multi_margin_loss") || begins("aten::multilabel_margin_loss"))
    return wrong_class(of);
  if (begins("aten::binary_cross_entropy") || begins("aten::bernoulli")) return wrong_probability(of);
  if (begins("aten::multinomial")) return wrong_weight(of);
  if (begins("aten::poisson"))
    return first_wrong<double>("self", of.tensor("self"), [](double value) { return !(value >= 0); });
  return wrong_index(of);
}

struct Kept {
  Lock lock;
  std::vector<Fault> faults;
};

Kept& kept() {
  static auto* all = new Kept;
  return *all;
}

pybind11::object as_python(const std::optional<WrongValue>& wrong) {
  if (!wrong) return pybind11::none();
  return pybind11::make_tuple(
      wrong->argument, wrong->value, wrong->position, wrong->least, wrong->bound, wrong->count, wrong->of);
}

} // namespace

VIRTUAL_KERNELS(kernels) {
  kernels.impl("embedding", TORCH_FN(embedding));
}

Fault fault_of(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments, std::string check) {
  Fault fault{.kernel = op.operator_name().name, .check = std::move(check)};
  Arguments of(op, arguments);
  of.each([&](const std::string& name, const Tensor& tensor) {
    fault.inputs.push_back({name, dtype_name(tensor.scalar_type()), shape_of(tensor).vec()});
  });
  try {
    fault.wrong = computed([&] { return wrong_value(fault.kernel, of); });
  } catch (const std::exception&) {
    // Then no value is known; the check's own words are.
  }
  return fault;
}

int64_t keep_fault(Fault fault) {
  std::lock_guard guard(kept().lock);
  kept().faults.push_back(std::move(fault));
  return int64_t(kept().faults.size()) - 1;
}

PyObject* faults_from(size_t first) {
  std::vector<Fault> fresh;
  {
    std::lock_guard guard(kept().lock);
    for (size_t i = first; i < kept().faults.size(); i++) fresh.push_back(kept().faults[i]);
  }
  pybind11::list list;
  for (const Fault& fault : fresh) {
    pybind11::list inputs;
    for (const auto& input : fault.inputs) inputs.append(pybind11::make_tuple(input.name, input.dtype, input.shape));
    list.append(pybind11::make_tuple(fault.kernel, fault.check, inputs, as_python(fault.wrong)));
  }
  return list.release().ptr();
}

} // namespace unstall
