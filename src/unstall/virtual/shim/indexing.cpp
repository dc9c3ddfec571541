// Small operators that CUDA makes of others, so that the log has those.
#include "redirect.h"

#include <ATen/ops/fill.h>

namespace unstall {
namespace {

Tensor& zero_(Tensor& self) {
  return self.fill_(0);
}

} // namespace

VIRTUAL_KERNELS(kernels) {
  kernels.impl("zero_", TORCH_FN(zero_));
}

} // namespace unstall
