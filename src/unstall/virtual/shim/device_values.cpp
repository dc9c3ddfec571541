#include "device_values.h"

#include "call.h"
#include "kernels.h"
#include "tensors.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace unstall {
namespace {

using at::Float32Op;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

// torch keeps this key for modes of tests: it comes before those of devices, and no program uses it.
constexpr auto KEY = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr int64_t OF_CALL = INT64_MAX; // the dimensions that the call's argument `dim` names: all, if it names none
constexpr int64_t WARP = 32;     // threads
constexpr int64_t GRAIN = 32768; // numbers, for each thread of the CPU at least

// One sum of an operator: the dimensions of its arguments along which terms are added up, and the dimensions of its
// results that have the same order.
struct Sum {
  struct Argument {
    const char* name;
    int64_t dim; // from the end, if negative
  };
  struct Result {
    size_t number;
    int64_t dim;
  };
  std::vector<Argument> arguments;
  std::vector<Result> results = {};
  bool of_channels = false; // those of a convolution: if it has groups or is transposed, weights have other dimensions
};

struct Row {
  std::vector<Sum> sums;
  bool is_product = false, is_atomic = false;
  std::optional<Float32Op> tf32 = std::nullopt; // the setting that rounds its factors
};


using Rows = std::unordered_map<c10::OperatorName, Row>;

Rows all_rows() {
  Rows rows;
  auto add = [&](std::initializer_list<const char*> names, const Row& row) {
    for (std::string name : names) {
      auto dot = name.find('.');
      rows.insert({{"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)}, row});
    }
  };
  auto product = [](const char* a, int64_t dim_of_a, const char* b, int64_t dim_of_b, std::optional<Float32Op> tf32) {
    return Row{{{{{a, dim_of_a}, {b, dim_of_b}}}}, true, false, tf32};
  };
  auto along = [](std::vector<const char*> names, int64_t dim, std::vector<size_t> results) {
    Sum sum;
    for (auto* name : names) sum.arguments.push_back({name, dim});
    for (auto number : results) sum.results.push_back({number, dim});
    return sum;
  };

  add({"mm", "mm.out"}, product("self", 1, "mat2", 0, Float32Op::MATMUL));
  add({"bmm", "bmm.out"}, product("self", 2, "mat2", 1, Float32Op::MATMUL));
  add({"addmm", "addmm_", "addmm.out", "_addmm_activation", "_addmm_activation.out"},
      product("mat1", 1, "mat2", 0, Float32Op::MATMUL));
  add({"baddbmm", "baddbmm_", "baddbmm.out", "addbmm", "addbmm_", "addbmm.out"},
      product("batch1", 2, "batch2", 1, Float32Op::MATMUL));
  // cuBLAS has no TF32 for these.
  add({"addmv", "addmv_", "addmv.out"}, product("mat", 1, "vec", 0, std::nullopt));
  add({"dot"}, product("self", 0, "tensor", 0, std::nullopt));
  add({"vdot"}, product("self", 0, "other", 0, std::nullopt));

  add({"convolution"}, {{{{{"input", 1}, {"weight", 1}}, {}, true}}, true, false, Float32Op::CONV});
  add({"convolution_backward"},
      {{along({"grad_output", "input"}, 0, {0}), {{{"grad_output", 1}, {"weight", 0}}, {{1, 0}, {2, 0}}, true}},
       true, false, Float32Op::CONV});

  add({"_scaled_dot_product_flash_attention_for_cpu"}, {{along({"query", "key"}, -1, {})}});
  add({"_scaled_dot_product_flash_attention_for_cpu_backward"},
      {{along({"query", "key"}, -1, {0, 1}), along({"grad_out", "value", "out"}, -1, {2})}});

  add({"sum.dim_IntList", "sum.IntList_out", "mean.dim", "mean.out", "nansum", "nansum.out", "linalg_vector_norm",
       "linalg_vector_norm.out", "norm.ScalarOpt_dim", "norm.out", "norm.ScalarOpt_dim_dtype", "norm.dtype_out",
       "var.correction", "var.correction_out", "std.correction", "std.correction_out", "var_mean.correction",
       "std_mean.correction"},
      {{along({"self"}, OF_CALL, {})}});
  add({"_softmax", "_log_softmax"}, {{along({"self"}, OF_CALL, {0})}});
  add({"_softmax_backward_data", "_log_softmax_backward_data"}, {{along({"grad_output", "output"}, OF_CALL, {0})}});
  add({"native_layer_norm"}, {{along({"input", "weight", "bias"}, -1, {0})}});
  add({"native_layer_norm_backward"},
      {{along({"grad_out", "input", "weight", "bias"}, -1, {0, 1, 2}),
        along({"grad_out", "input", "mean", "rstd"}, 0, {0})}});
  add({"native_batch_norm"}, {{along({"input"}, 0, {0})}});
  add({"native_batch_norm_backward"}, {{along({"grad_out", "input"}, 0, {0})}});

  Row adding{{{{{"index", 0}, {"source", OF_CALL}}}}, false, true};
  add({"index_add", "index_add_", "index_add.out"}, adding);
  add({"scatter_add", "scatter_add_", "scatter_add.out", "scatter_reduce.two", "scatter_reduce_.two",
       "scatter_reduce.two_out"},
      {{along({"index", "src"}, OF_CALL, {})}, false, true});
  add({"embedding_dense_backward"},
      {{along({"grad_output", "indices"}, 0, {}), along({"grad_output", "indices"}, 1, {})}, false, true});
  add({"_index_put_impl_"}, {{along({"values"}, 0, {})}, false, true});
  return rows;
}

const Rows& rows() {
  static auto* all = new Rows(all_rows());
  return *all;
}

// The order in which the threads of a warp, each with a part of its own, add up n terms: those of the first, then of
// the next. Fewer threads, if they had fewer terms than there are threads.
Tensor order_of_threads(int64_t n) {
  int64_t threads = std::min(WARP, int64_t(std::ceil(std::sqrt(double(n)))));
  Tensor order = at::empty({n}, at::kLong);
  auto* next = order.data_ptr<int64_t>();
  for (int64_t thread = 0; thread < threads; thread++)
    for (int64_t i = thread; i < n; i += threads) *next++ = i;
  return order;
}

Tensor order_of_atomics(int64_t n) {
  auto generator = at::detail::createCPUGenerator(seed_of_atomics(current_device()));
  return at::randperm(n, generator, at::TensorOptions(at::kLong));
}

Tensor places_of(const Tensor& order) {
  Tensor places = at::empty_like(order);
  const auto* from = order.data_ptr<int64_t>();
  auto* to = places.data_ptr<int64_t>();
  for (int64_t i = 0; i < order.numel(); i++) to[from[i]] = i;
  return places;
}

// With the strides of `tensor`: those of results follow from them.
Tensor reordered(const Tensor& tensor, int64_t dim, const Tensor& order) {
  Tensor out = at::empty_like(tensor);
  return at::index_select_out(out, tensor, dim, order);
}

// As PTX's cvt.rna.tf32.f32: 10 bits of the mantissa, to the nearest, ties away from zero.
Tensor in_tf32(const Tensor& tensor) {
  constexpr uint32_t HALF = 1u << 12, KEPT = ~((1u << 13) - 1), EXPONENT = 0x7F800000u;
  Tensor out = tensor.clone(); // dense
  auto* numbers = out.data_ptr<float>();
  at::parallel_for(0, out.numel(), GRAIN, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      uint32_t bits;
      std::memcpy(&bits, numbers + i, sizeof bits);
      if ((bits & EXPONENT) == EXPONENT) continue; // inf and nan
      bits = (bits + HALF) & KEPT;
      std::memcpy(numbers + i, &bits, sizeof bits);
    }
  });
  return out;
}

// While it lives, the CPU computes with one thread: its index_put_ with several adds up in the order of chance.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

class ReorderedCall {
 public:
  ReorderedCall(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack)
      : op_(op), keys_(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, KEY)), stack_(stack),
        first_(stack->size() - op.schema().arguments().size()), row_(rows().at(op.operator_name())) {}

  void run() {
    if (row_.is_atomic && at::globalContext().deterministicAlgorithms()) return run_kernel();
    if (op_.operator_name().name == "aten::_index_put_impl_") return run_index_put();
    for (const Sum& sum : row_.sums)
      if (!sum.of_channels || has_plain_channels()) reorder(sum);
    if (row_.tf32 && rounds_to_tf32(*row_.tf32)) round_factors();
    run_kernel();
    for (auto& undo : undone_) {
      IValue& result = (*stack_)[stack_->size() - op_.schema().returns().size() + undo.result];
      if (result.isTensor() && result.toTensor().defined())
        result = reordered(result.toTensor(), undo.dim, undo.order);
    }
  }

 private:
  struct Undo {
    size_t result;
    int64_t dim;
    Tensor order;
  };

  IValue& argument(const char* name) {
    return (*stack_)[first_ + size_t(op_.schema().argumentIndexWithName(name).value())];
  }

  // Undefined, if the argument is none.
  Tensor tensor(const char* name) {
    IValue& value = argument(name);
    return value.isTensor() ? value.toTensor() : Tensor();
  }

  bool has_plain_channels() {
    return !argument("transposed").toBool() && argument("groups").toInt() == 1;
  }

  void run_kernel() {
    if (row_.is_product)
      for (const Sum& sum : row_.sums)
        for (const auto& [name, dim] : sum.arguments)
          if (at::ScalarType type = tensor(name).scalar_type(); type == at::kHalf || type == at::kBFloat16)
            return run_wider(op_, nullptr, keys_, stack_, type);
    op_.redispatchBoxed(keys_, stack_);
  }

  void reorder(const Sum& sum) {
    auto is_of_call = [](const Sum::Argument& each) { return each.dim == OF_CALL; };
    if (std::none_of(sum.arguments.begin(), sum.arguments.end(), is_of_call)) return reorder(sum, 0);
    const IValue& dims = argument("dim");
    if (dims.isInt()) return reorder(sum, dims.toInt());
    std::vector<int64_t> named;
    if (dims.isIntList()) named = dims.toIntVector();
    if (named.empty())
      for (int64_t dim = 0; dim < tensor(sum.arguments[0].name).dim(); dim++) named.push_back(dim);
    for (int64_t dim : named) reorder(sum, dim);
  }

  void reorder(const Sum& sum, int64_t of_call) {
    auto dim_of = [&](int64_t dim, const Tensor& tensor) {
      if (dim == OF_CALL) dim = of_call;
      return dim < 0 ? dim + tensor.dim() : dim;
    };
    int64_t terms = -1;
    bool exact = true; // so that the order does not matter
    for (const auto& [name, dim] : sum.arguments) {
      Tensor each = tensor(name);
      if (!each.defined()) continue;
      int64_t along = dim_of(dim, each);
      if (along < 0 || along >= each.dim() || (terms >= 0 && each.size(along) != terms)) return;
      terms = each.size(along);
      exact = exact && at::isIntegralType(each.scalar_type(), true);
    }
    constexpr int64_t FEWEST = 3; // two are the same in any order
    if (terms < FEWEST || exact) return;
    Tensor order = row_.is_atomic ? order_of_atomics(terms) : order_of_threads(terms);
    for (const auto& [name, dim] : sum.arguments)
      if (Tensor each = tensor(name); each.defined()) argument(name) = reordered(each, dim_of(dim, each), order);
    Tensor back = sum.results.empty() ? Tensor() : places_of(order);
    for (const auto& [number, dim] : sum.results) undone_.push_back({number, dim == OF_CALL ? of_call : dim, back});
  }

  void round_factors() {
    for (const Sum& sum : row_.sums)
      for (const auto& [name, dim] : sum.arguments)
        if (Tensor factor = tensor(name); factor.defined() && factor.scalar_type() == at::kFloat)
          argument(name) = in_tf32(factor);
  }

  // Arguments: self, indices, values, accumulate, unsafe. Masks were turned into indices.
  void run_index_put() {
    Tensor values = tensor("values"), self = tensor("self");
    if (!argument("accumulate").toBool() || at::isIntegralType(values.scalar_type(), true)) return run_kernel();
    auto given = optional_tensors(argument("indices"));
    std::vector<int64_t> dims; // of self, that are indexed
    std::vector<int64_t> shape; // of all indices together
    for (size_t i = 0; i < given.size(); i++) {
      std::optional<Tensor> index = given[i];
      if (!index || !index->defined()) continue;
      if (at::isIntegralType(index->scalar_type(), false) && index->scalar_type() != at::kByte) {
        shape = dims.empty() ? index->sizes().vec() : at::infer_size(shape, index->sizes());
        dims.push_back(int64_t(i));
      } else {
        return run_kernel();
      }
    }
    if (dims.empty()) return run_kernel();
    bool adjacent = dims.back() - dims.front() + 1 == int64_t(dims.size());
    int64_t before = adjacent ? dims.front() : 0, places = c10::multiply_integers(shape);
    std::vector<int64_t> head, tail; // sizes of the dimensions that are not indexed
    for (int64_t dim = 0; dim < self.dim(); dim++)
      if (std::find(dims.begin(), dims.end(), dim) == dims.end())
        (dim < before ? head : tail).push_back(self.size(dim));
    auto with = [&](at::IntArrayRef middle) {
      std::vector<int64_t> sizes = head;
      sizes.insert(sizes.end(), middle.begin(), middle.end());
      sizes.insert(sizes.end(), tail.begin(), tail.end());
      return sizes;
    };
    Tensor order = order_of_atomics(places);
    c10::List<std::optional<Tensor>> indices;
    for (size_t i = 0; i < given.size(); i++) {
      std::optional<Tensor> index = given[i];
      indices.push_back(
          index && index->defined()
              ? std::optional(index->expand(shape).reshape({places}).index_select(0, order))
              : std::nullopt);
    }
    argument("indices") = indices;
    argument("values") = values.expand(with(shape)).reshape(with(places)).index_select(before, order);
    OneThread one;
    run_kernel();
  }

  const OperatorHandle& op_;
  c10::DispatchKeySet keys_;
  Stack* stack_;
  size_t first_;
  const Row& row_;
  std::vector<Undo> undone_;
};

void compute(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard once(KEY); // not again the operators that the CPU's kernel is made of
  ReorderedCall(op, keys, stack).run();
}

} // namespace

void register_device_values() {
  static bool registered = false;
  if (std::exchange(registered, true)) return;
  library("_", KEY).fallback(torch::CppFunction::makeFallthrough());
  auto& aten = library("aten", KEY);
  for (const auto& [name, row] : rows()) {
    if (!c10::Dispatcher::singleton().findSchema(name)) continue; // not every torch has each of them
    std::string full = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&compute>());
  }
}

std::optional<Float32Op> tf32_setting(const c10::OperatorName& name) {
  if (name.name.rfind("aten::_cudnn_rnn", 0) == 0) return Float32Op::RNN;
  auto found = rows().find(name);
  return found == rows().end() ? std::nullopt : found->second.tf32;
}

bool rounds_to_tf32(Float32Op setting) {
  return settings().has_tf32 &&
      at::globalContext().float32Precision(at::Float32Backend::CUDA, setting) == at::Float32Precision::TF32;
}

AsDevice::AsDevice() {
  if (!settings().as_device) return;
  auto here = c10::impl::tls_local_dispatch_key_set();
  included_.emplace(here.included_.add(KEY), here.excluded_.remove(KEY)); // Python's modes exclude it
}

c10::DispatchKeySet keys_of_cpu(const OperatorHandle& op) {
  c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  return settings().as_device && op.hasKernelForDispatchKey(KEY) ? keys.add(KEY) : keys;
}

} // namespace unstall
