// Normalizations: CUDA saves statistics in the accumulation type; cuDNN's batch norm saves others in evaluation.
#include "substitutes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace unstall {
namespace {

at::ScalarType accumulated(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

bool is_defined(const OptionalTensor& tensor) {
  return tensor && tensor->defined();
}

// The CPU's kernels expect statistics in the type of the parameters, or of the running statistics.
at::ScalarType parameter_type(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& running_mean = std::nullopt) {
  if (is_defined(weight)) return weight->scalar_type();
  return is_defined(running_mean) ? running_mean->scalar_type() : input.scalar_type();
}

at::MemoryFormat format_of(const Tensor& input) {
  return input.suggest_memory_format();
}

Four cudnn_batch_norm(
    const Tensor& input, const Tensor& weight, const OptionalTensor& bias, const OptionalTensor& mean,
    const OptionalTensor& variance, bool training, double momentum, double eps) {
  auto [out, saved_mean, saved_invstd] =
      at::native_batch_norm(input, weight, bias, mean, variance, training, momentum, eps);
  auto options = weight.options().dtype(accumulated(weight));
  if (training) {
    saved_mean = saved_mean.to(accumulated(weight));
    saved_invstd = saved_invstd.to(accumulated(weight));
  } else {
    saved_mean = at::empty({0}, options);
    saved_invstd = at::empty({0}, options);
  }
  return {in_format(out, format_of(input)), saved_mean, saved_invstd, at::empty({0}, input.options().dtype(at::kByte))};
}

Three cudnn_batch_norm_backward(
    const Tensor& input, const Tensor& grad, const Tensor& weight, const OptionalTensor& mean,
    const OptionalTensor& variance, const OptionalTensor& saved_mean, const OptionalTensor& saved_invstd, double eps,
    const Tensor&) {
  auto [grad_input, grad_weight, grad_bias] = at::native_batch_norm_backward(
      grad, input, weight, mean, variance, saved_mean, saved_invstd, true, eps, {true, true, true});
  return {in_format(grad_input, format_of(input)), grad_weight, grad_bias};
}

Three batch_norm(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, const OptionalTensor& mean,
    const OptionalTensor& variance, bool training, double momentum, double eps) {
  auto [out, saved_mean, saved_invstd] =
      at::native_batch_norm(input, weight, bias, mean, variance, training, momentum, eps);
  auto type = accumulated(input);
  if (!training && is_defined(mean) && is_defined(variance)) {
    saved_mean = mean->to(type, false, true);
    saved_invstd = at::rsqrt(variance->to(type) + eps);
  } else {
    saved_mean = saved_mean.to(type);
    saved_invstd = saved_invstd.to(type);
  }
  return {in_format(out, format_of(input)), saved_mean, saved_invstd};
}

Three batch_norm_legit(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, Tensor& mean, Tensor& variance,
    bool training, double momentum, double eps) {
  return batch_norm(input, weight, bias, mean, variance, training, momentum, eps);
}

Three batch_norm_backward(
    const Tensor& grad, const Tensor& input, const OptionalTensor& weight, const OptionalTensor& mean,
    const OptionalTensor& variance, const OptionalTensor& saved_mean, const OptionalTensor& saved_invstd,
    bool training, double eps, std::array<bool, 3> wanted) {
  auto type = parameter_type(input, weight, mean);
  auto as_parameters = [&](const OptionalTensor& x) { return is_defined(x) ? OptionalTensor(x->to(type)) : x; };
  auto [grad_input, grad_weight, grad_bias] = at::native_batch_norm_backward(
      grad, input, weight, mean, variance, as_parameters(saved_mean), as_parameters(saved_invstd), training, eps,
      wanted);
  if (grad_input.defined()) grad_input = in_format(grad_input, format_of(input));
  return {grad_input, grad_weight, grad_bias};
}

// The parts of SyncBatchNorm: each rank's statistics, all ranks' statistics, and the results.

std::vector<int64_t> all_but_channels(const Tensor& x) {
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < x.dim(); i++)
    if (i != 1) dims.push_back(i);
  return dims;
}

// One value for each channel, to be broadcast over x.
Tensor along_channels(const Tensor& values, const Tensor& x) {
  std::vector<int64_t> shape(size_t(x.dim()), 1);
  shape[1] = x.size(1);
  return values.to(accumulated(x)).view(shape);
}

Two batch_norm_stats(const Tensor& input, double eps) {
  auto [variance, mean] = at::var_mean(input.to(accumulated(input)), all_but_channels(input), 0);
  return {mean, at::rsqrt(variance + eps)};
}

Two batch_norm_gather_stats(
    const Tensor&, const Tensor& means, const Tensor& invstds, const OptionalTensor& running_mean,
    const OptionalTensor& running_variance, double momentum, double eps, const Tensor& counts) {
  Tensor count = counts.to(means.scalar_type()).unsqueeze(1), total = count.sum();
  Tensor mean = (means * count).sum(0) / total;
  Tensor squares = ((invstds.pow(-2) - eps + (means - mean).square()) * count).sum(0);
  if (is_defined(running_mean)) running_mean->mul_(1 - momentum).add_(mean, momentum);
  if (is_defined(running_variance)) running_variance->mul_(1 - momentum).add_(squares / (total - 1), momentum);
  return {mean, at::rsqrt(squares / total + eps)};
}

Tensor batch_norm_elemt(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, const Tensor& mean,
    const Tensor& invstd, double) {
  Tensor out = (input - along_channels(mean, input)) * along_channels(invstd, input);
  if (is_defined(weight)) out = out * along_channels(*weight, input);
  if (is_defined(bias)) out = out + along_channels(*bias, input);
  return in_format(out.to(input.scalar_type()), format_of(input));
}

Four batch_norm_backward_reduce(
    const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd, const OptionalTensor& weight,
    bool wants_input, bool wants_weight, bool wants_bias) {
  Tensor wide = grad.to(accumulated(input));
  Tensor sum = wide.sum(all_but_channels(input));
  Tensor product = (wide * (input - along_channels(mean, input))).sum(all_but_channels(input));
  auto type = parameter_type(sum, weight);
  return {
      wants_input ? sum : Tensor(), wants_input ? product : Tensor(),
      wants_weight ? (product * invstd).to(type) : Tensor(), wants_bias ? sum.to(type, false, true) : Tensor()};
}

Tensor batch_norm_backward_elemt(
    const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd, const OptionalTensor& weight,
    const Tensor& sum, const Tensor& product, const Tensor& counts) {
  Tensor total = counts.sum(), slope = product / total * invstd * invstd;
  Tensor out = grad - along_channels(sum / total, input) -
      (input - along_channels(mean, input)) * along_channels(slope, input);
  out = out * along_channels(is_defined(weight) ? invstd * *weight : invstd, input);
  return in_format(out.to(input.scalar_type()), format_of(input));
}

// Only the CPU has mixed types.
void check_type(const Tensor& input, const OptionalTensor& weight) {
  TORCH_CHECK(
      !is_defined(weight) || weight->scalar_type() == input.scalar_type(), "expected scalar type ",
      input.scalar_type(), " but found ", weight->scalar_type());
}

Three layer_norm(
    const Tensor& input, IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  check_type(input, weight);
  auto [out, mean, rstd] = at::native_layer_norm(input, shape, weight, bias, eps);
  return {out, mean.to(accumulated(input)), rstd.to(accumulated(input))};
}

Three layer_norm_backward(
    const Tensor& grad, const Tensor& input, IntArrayRef shape, const Tensor& mean, const Tensor& rstd,
    const OptionalTensor& weight, const OptionalTensor& bias, std::array<bool, 3> wanted) {
  auto type = parameter_type(input, weight);
  return at::native_layer_norm_backward(grad, input, shape, mean.to(type), rstd.to(type), weight, bias, wanted);
}

Three group_norm(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, int64_t n, int64_t c, int64_t hw,
    int64_t groups, double eps) {
  check_type(input, weight);
  auto [out, mean, rstd] = at::native_group_norm(input.contiguous(), weight, bias, n, c, hw, groups, eps);
  return {out, mean.to(input.scalar_type()), rstd.to(input.scalar_type())};
}

Three group_norm_backward(
    const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& rstd, const OptionalTensor& weight,
    int64_t n, int64_t c, int64_t hw, int64_t groups, std::array<bool, 3> wanted) {
  auto type = parameter_type(input, weight);
  return at::native_group_norm_backward(
      grad.contiguous(), input.contiguous(), mean.to(type), rstd.to(type), weight, n, c, hw, groups, wanted);
}

std::vector<int64_t> last_dims(IntArrayRef shape) {
  std::vector<int64_t> dims;
  for (int64_t i = -int64_t(shape.size()); i < 0; i++) dims.push_back(i);
  return dims;
}

Two rms_norm(
    const Tensor& input, IntArrayRef shape, const OptionalTensor& weight, std::optional<double> eps) {
  auto type = accumulated(input);
  double small = eps.value_or(
      type == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon());
  Tensor x = input.to(type);
  Tensor rstd = at::rsqrt(at::mean(at::pow(x, 2), last_dims(shape), true) + small);
  Tensor out = x * rstd;
  if (is_defined(weight)) out = out * weight->to(type);
  return {out.to(input.scalar_type()).contiguous(), rstd};
}

Two rms_norm_backward(
    const Tensor& grad, const Tensor& input, IntArrayRef shape, const Tensor& rstd, const OptionalTensor& weight,
    std::array<bool, 2> wanted) {
  auto type = accumulated(input);
  Tensor normed = input.to(type) * rstd, wide_grad = grad.to(type);
  Tensor grad_input, grad_weight;
  if (wanted[0]) {
    Tensor weighted = is_defined(weight) ? wide_grad * weight->to(type) : wide_grad;
    Tensor mean = at::mean(weighted * normed, last_dims(shape), true);
    grad_input = ((weighted - normed * mean) * rstd).to(input.scalar_type());
  }
  if (wanted[1] && is_defined(weight))
    grad_weight = at::sum_to(wide_grad * normed, weight->sizes()).to(weight->scalar_type());
  return {grad_input, grad_weight};
}

} // namespace

SUBSTITUTES(list) {
  list.add("cudnn_batch_norm", &cudnn_batch_norm);
  list.add("cudnn_batch_norm_backward", &cudnn_batch_norm_backward);
  list.add("native_batch_norm", &batch_norm);
  list.add("_native_batch_norm_legit", &batch_norm_legit);
  list.add("native_batch_norm_backward", &batch_norm_backward);
  list.add("batch_norm_stats", &batch_norm_stats);
  list.add("batch_norm_gather_stats_with_counts", &batch_norm_gather_stats);
  list.add("batch_norm_elemt", &batch_norm_elemt);
  list.add("batch_norm_backward_reduce", &batch_norm_backward_reduce);
  list.add("batch_norm_backward_elemt", &batch_norm_backward_elemt);
  list.add("native_layer_norm", &layer_norm);
  list.add("native_layer_norm_backward", &layer_norm_backward);
  list.add("native_group_norm", &group_norm);
  list.add("native_group_norm_backward", &group_norm_backward);
  list.add("_fused_rms_norm", &rms_norm);
  list.add("_fused_rms_norm_backward", &rms_norm_backward);
}

} // namespace unstall
