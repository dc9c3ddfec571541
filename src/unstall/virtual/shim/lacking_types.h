// The errors of kernels that lack a data type: the CPU's kernels compute here, and their errors name them.
#pragma once
#include <ATen/core/operator_name.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>

namespace unstall {

// What the error of a kernel that lacks a data type says. Example: "elu_cpu" not implemented for 'Long'
struct Lacking {
  std::string kernel, type;

  // nullopt: the error is another one.
  static std::optional<Lacking> of(const c10::NotImplementedError& error);
};

// Raises the error of CUDA's kernel in place of the CPU's. If CUDA's kernel has the type, the error says that the
// virtual GPU cannot do it.
[[noreturn]] void raise_as_cuda(const c10::OperatorName& name, const Lacking& lacking);

} // namespace unstall
