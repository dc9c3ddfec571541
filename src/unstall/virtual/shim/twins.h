#pragma once
#include "redirect.h"

namespace unstall {

// A tensor of the virtual GPU like `cpu`, over a storage that is there already.
Tensor over(const Tensor& cpu, c10::Storage storage);

} // namespace unstall
