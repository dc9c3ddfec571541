// What CUDA refuses although the CPU's kernels, which compute here, would do it.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace unstall {

// The refusals of one operator.
struct Refusals {
  explicit Refusals(const c10::OperatorName& name);

  // Raises if CUDA has no kernel for the data type of the arguments. Raises, or warns, if the program asked for
  // deterministic operators and CUDA's is not.
  void check(c10::ArrayRef<c10::IValue> arguments) const;

  bool any = false;

 private:
  const char* kernel_ = nullptr; // as the message names it, if it lacks data types
  bool (*takes_)(c10::ScalarType) = nullptr;
  bool by_cudnn_ = false;
  const char* varies_ = nullptr; // as the message names it, if it is not deterministic
  bool (*varies_if_)(c10::ArrayRef<c10::IValue> arguments) = nullptr; // nullptr: it never is
};

} // namespace unstall
