// Convolutions, as one operator each: values by the CPU's kernels, memory formats as cuDNN gives them.
#include "substitutes.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>

namespace unstall {
namespace {

// Channels last if the input or the weight is, except if cuDNN does not support that.
at::MemoryFormat format_of(const Tensor& input, const Tensor& weight) {
  if (!at::globalContext().userEnabledCuDNN() || input.scalar_type() == at::kDouble) return at::MemoryFormat::Contiguous;
  auto wanted = weight.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  if (weight.dim() != 4 && weight.dim() != 5) return at::MemoryFormat::Contiguous;
  bool last = input.suggest_memory_format() == wanted || weight.suggest_memory_format() == wanted;
  return last ? wanted : at::MemoryFormat::Contiguous;
}

Tensor convolve(
    const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups) {
  Tensor out =
      at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  if (out.dim() != weight.dim() || out.numel() == 0) return out;
  return in_format(out, format_of(input, weight));
}

Three convolve_backward(
    const Tensor& grad, const Tensor& input, const Tensor& weight, at::OptionalIntArrayRef bias_sizes,
    IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> wanted) {
  auto results = at::convolution_backward(
      grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, wanted);
  auto format = format_of(input, weight);
  auto& [input_grad, weight_grad, bias_grad] = results;
  if (input_grad.defined() && input_grad.numel()) input_grad = in_format(input_grad, format);
  if (weight_grad.defined()) weight_grad = in_format(weight_grad, format);
  return results;
}

Tensor cudnn(
    const Tensor& input, const Tensor& weight, IntArrayRef padding, IntArrayRef stride, IntArrayRef dilation,
    int64_t groups, bool, bool, bool) {
  return convolve(input, weight, {}, stride, padding, dilation, false, {0}, groups);
}

Tensor cudnn_transposed(
    const Tensor& input, const Tensor& weight, IntArrayRef padding, IntArrayRef output_padding, IntArrayRef stride,
    IntArrayRef dilation, int64_t groups, bool, bool, bool) {
  return convolve(input, weight, {}, stride, padding, dilation, true, output_padding, groups);
}

Tensor cudnn_relu(
    const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups) {
  return convolve(input, weight, bias, stride, padding, dilation, false, {0}, groups).relu();
}

Tensor cudnn_add_relu(
    const Tensor& input, const Tensor& weight, const Tensor& added, const std::optional<at::Scalar>& alpha,
    const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  Tensor out = convolve(input, weight, bias, stride, padding, dilation, false, {0}, groups);
  return out.add(added, alpha.value_or(1)).relu();
}

Tensor depthwise(
    const Tensor& input, const Tensor& weight, IntArrayRef, const OptionalTensor& bias, IntArrayRef stride,
    IntArrayRef padding, IntArrayRef dilation) {
  return convolve(input, weight, bias, stride, padding, dilation, false, {0}, weight.size(0) / weight.size(1));
}

} // namespace

SUBSTITUTES(list) {
  list.add("convolution", &convolve);
  list.add("convolution_backward", &convolve_backward);
  list.add("cudnn_convolution", &cudnn);
  list.add("cudnn_convolution_transpose", &cudnn_transposed);
  list.add("cudnn_convolution_relu", &cudnn_relu);
  list.add("cudnn_convolution_add_relu", &cudnn_add_relu);
  list.add("_conv_depthwise2d", &depthwise);
  list.add("conv_depthwise3d", &depthwise);
}

} // namespace unstall
