// Convolutions in traces of torch.jit. A trace does not record `convolution`, but `_convolution`, which torch's own kernel
// calls. The virtual GPU's kernel does not call it, so it would leave a constant in the trace.
#include "kernels.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/RedispatchFunctions.h>
#include <c10/util/Exception.h>

namespace unstall {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr c10::DispatchKeySet after_tracer(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Tracer);

Tensor convolution(
    c10::DispatchKeySet keys, const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
    IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups) {
  if (!input.is_cuda())
    return at::redispatch::convolution(
        keys & after_tracer, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  auto& torch = at::globalContext();
  return at::_convolution(
      input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, torch.benchmarkCuDNN(),
      torch.deterministicCuDNN(), torch.userEnabledCuDNN(), torch.allowTF32CuDNN());
}

// What a trace runs. `convolution` has the gradients.
Tensor recorded(
    const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups, bool, bool, bool, bool) {
  return at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

} // namespace

void register_traced_convolutions() {
  Silent silent; // torch warns that its own kernel for traces is replaced
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  library("aten", c10::DispatchKey::Tracer).impl("convolution", TORCH_FN(convolution));
  for (auto key : {c10::DispatchKey::AutogradCUDA, c10::DispatchKey::CUDA})
    library("aten", key).impl("_convolution", TORCH_FN(recorded));
}

} // namespace unstall
