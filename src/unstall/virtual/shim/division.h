// Divisions of integers by 0, which CUDA computes and the CPU refuses.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace unstall {

// Whether an operator divides integers, or may: by its rounding mode.
bool divides_integers(const c10::OperatorName& name);

// A call that divides integers by 0, which the CPU's kernels refuse, or by -1, which ends the process if they divide the
// smallest integer by it. The CPU divides by 1 instead, and the results are put right.
//
// CUDA leaves x / 0 and x % 0 undefined. These are those of an H200, for both: all bits of the integer set, but if an
// int64 is in [0, 2^32), all lower 32 bits. Quotients that are rounded down are less by 1 for negative integers. uint8
// is divided as int32.
class OddDivision {
 public:
  // nullopt: the CPU can compute the call. `arguments`: on the CPU, of an operator that divides integers.
  static std::optional<OddDivision> in(const c10::OperatorName& name, c10::ArrayRef<c10::IValue> arguments);

  const at::Tensor& divisor() const { return divisor_; } // 1 in place of 0 and -1
  bool by_zero() const { return at_zero_.defined(); }
  void put_right(const at::Tensor& result) const;

 private:
  at::Tensor divisor_, is_zero_, at_zero_, is_minus_one_, at_minus_one_;
};

// The program divides integers by 0 here.
void divides_by_zero_here();
// The numbers of the stacks at which it does, in order of the first time.
std::vector<int32_t> divisions_by_zero();

} // namespace unstall
