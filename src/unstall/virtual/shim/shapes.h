// Operators without their values: what is captured into a graph, and all that is large where numerics are skipped.
// Shapes come from torch's Meta kernels.
#pragma once
#include "redirect.h"

namespace unstall {

constexpr int64_t MOST_KNOWN = 65536; // elements that are still computed where numerics are skipped

Tensor to_meta(const Tensor& tensor);
// A new tensor on `device` of a Meta tensor's shape.
Tensor from_meta(const Tensor& meta, int device);
// What a Meta kernel did to the twin of `cuda`: sizes, strides; its storage grows where that needs more.
void follow_meta(const Tensor& cuda, const Tensor& meta);

// Whether a tensor's values were computed. A tensor of the CPU's were.
bool known(const Tensor& tensor);
// Of all that shares the tensor's storage.
void set_known(const Tensor& tensor, bool known);
bool covers_storage(const Tensor& tensor);
// A value was read that was not computed: warns, once for each place in the program.
void warn_unknown();

} // namespace unstall
