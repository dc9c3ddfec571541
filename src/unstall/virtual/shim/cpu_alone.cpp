// Operators that the CPU has kernels of its own for and CUDA has not: made of others there, or refused there, too.
#include "redirect.h"

#include <ATen/ops/native_channel_shuffle_native.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>

namespace unstall {
namespace {

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "Could not run '", op.operator_name(),
      "' with arguments from the 'CUDA' backend. torch has no kernel of CUDA for this operator, so a GPU cannot run it "
      "either.");
}

} // namespace

VIRTUAL_KERNELS(kernels) {
  kernels.impl("pixel_shuffle", TORCH_FN(at::native::math_pixel_shuffle));
  kernels.impl("pixel_unshuffle", TORCH_FN(at::native::math_pixel_unshuffle));
  kernels.impl("native_channel_shuffle", TORCH_FN(at::native::math_channel_shuffle));
  for (const char* name :
       {"histogram.bins_tensor", "histogram.bins_tensor_out", "histogram.bin_ct", "histogram.bin_ct_out",
        "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors"})
    kernels.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

} // namespace unstall
