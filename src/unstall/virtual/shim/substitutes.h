// Substitutes for CPU kernels: for operators that CUDA computes by other operators than the CPU, or with other outputs.
//
// A substitute is an ordinary function with the operator's C++ signature. It gets CPU tensors, or meta tensors if only
// shapes are wanted. Its results have the shapes, strides and dtypes of CUDA's kernel, since the memory of a program is
// predicted from them. redirect() does everything else: bytes, the log, streams, capture.
//
//   SUBSTITUTES(list) { list.add("native_group_norm", &group_norm); }
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>

namespace unstall {

// The types in operators' signatures.
using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

struct Substitute {
  c10::KernelFunction kernel;
  uint64_t host_outputs; // bit i: output i is a tensor of the CPU on CUDA, too
};

// nullptr if the CPU's own kernel computes the same as CUDA's.
const Substitute* substitute_for(const c10::OperatorName& name);

class Substitutes {
 public:
  // `name` as in Kernels::impl: without "aten::", with its overload ("_ctc_loss.Tensor").
  template <class F>
  void add(const std::string& name, F* function, std::initializer_list<int> host_outputs = {}) {
    uint64_t bits = 0;
    for (int output : host_outputs) bits |= uint64_t(1) << output;
    insert(name, {c10::KernelFunction::makeFromUnboxedRuntimeFunction(function), bits});
  }

 private:
  void insert(const std::string& name, Substitute substitute);
};

struct SubstitutesOfFile {
  explicit SubstitutesOfFile(void (*add)(Substitutes&));
};

#define SUBSTITUTES(list)                                                             \
  static void substitutes_of_this_file(::unstall::Substitutes& list);                 \
  static ::unstall::SubstitutesOfFile substitutes_added(substitutes_of_this_file);    \
  static void substitutes_of_this_file(::unstall::Substitutes& list)

// `tensor` with CUDA's memory format: itself where it has that already.
Tensor in_format(const Tensor& tensor, at::MemoryFormat format);

} // namespace unstall
