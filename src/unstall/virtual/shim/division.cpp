#include "division.h"

#include "places.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <string>

namespace unstall {
namespace {

using at::Tensor;

enum class Wanted { TRUNCATED, FLOORED, REMAINDER, NO_INTEGER };

Wanted wanted(const std::string& op, c10::ArrayRef<c10::IValue> arguments) {
  if (op.rfind("floor_divide", 0) == 0) return Wanted::FLOORED;
  if (op.rfind("div", 0) != 0) return Wanted::REMAINDER;
  if (arguments[2].isNone()) return Wanted::NO_INTEGER;
  return arguments[2].toStringView() == "floor" ? Wanted::FLOORED : Wanted::TRUNCATED;
}

Tensor over_zero(const Tensor& dividend, bool floored) {
  constexpr int64_t ALL_LOWER = (int64_t(1) << 32) - 1;
  const auto type = dividend.scalar_type();
  if (type == at::kByte) return at::full_like(dividend, 255);
  Tensor quotient = at::full_like(dividend, -1);
  if (type == at::kLong) quotient.masked_fill_(dividend.ge(0).logical_and(dividend.le(ALL_LOWER)), ALL_LOWER);
  return floored ? quotient.sub_(dividend.lt(0).to(type)) : quotient;
}

Places& places() {
  static auto* all = new Places;
  return *all;
}

} // namespace

bool divides_integers(const c10::OperatorName& name) {
  const std::string &op = name.name, &overload = name.overload_name;
  if (op == "aten::div" || op == "aten::div_") return overload.find("mode") != std::string::npos;
  for (const char* each : {"aten::floor_divide", "aten::remainder", "aten::fmod"})
    if (op == each || op == std::string(each) + "_") return true;
  return false;
}

std::optional<OddDivision> OddDivision::in(const c10::OperatorName& name, c10::ArrayRef<c10::IValue> arguments) {
  if (!arguments[1].isTensor()) return std::nullopt; // those with numbers are made of those with tensors
  const Wanted what = wanted(name.name.substr(name.name.find("::") + 2), arguments);
  const Tensor given = arguments[1].toTensor();
  const bool is_tensor = arguments[0].isTensor();
  const Tensor of = is_tensor ? arguments[0].toTensor() : at::native::wrapped_scalar_tensor(arguments[0].toScalar());
  const auto type = at::result_type(of, given);
  if (what == Wanted::NO_INTEGER || !at::isIntegralType(type, false)) return std::nullopt;
  OddDivision odd;
  odd.divisor_ = given.to(type);
  odd.is_zero_ = odd.divisor_.eq(0);
  odd.is_minus_one_ = at::isSignedType(type) ? odd.divisor_.eq(-1) : at::zeros_like(odd.is_zero_);
  const Tensor is_odd = odd.is_zero_.logical_or(odd.is_minus_one_);
  if (!is_odd.any().item<bool>()) return std::nullopt;
  odd.divisor_ = odd.divisor_.masked_fill(is_odd, 1);
  const Tensor dividend = of.to(type);
  const bool quotient = what != Wanted::REMAINDER;
  odd.at_minus_one_ = quotient && at::isSignedType(type) ? dividend.neg() : at::zeros_like(dividend);
  if (odd.is_zero_.any().item<bool>()) odd.at_zero_ = over_zero(dividend, what == Wanted::FLOORED);
  return odd;
}

void OddDivision::put_right(const Tensor& result) const {
  const auto type = result.scalar_type();
  Tensor right = at::where(is_minus_one_, at_minus_one_.to(type), result);
  if (by_zero()) right = at::where(is_zero_, at_zero_.to(type), right);
  result.copy_(right);
}

void divides_by_zero_here() {
  places().add_here();
}

std::vector<int32_t> divisions_by_zero() {
  return places().stacks();
}

} // namespace unstall
