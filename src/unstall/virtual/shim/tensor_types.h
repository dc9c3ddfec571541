// torch.cuda.FloatTensor and the others: types of torch's own, which a build for CPUs refuses to use.
#pragma once
#include <pybind11/pybind11.h>

namespace unstall {

// Makes `type` create tensors of the virtual GPU. Returns false, with nothing changed, if this torch lays out its types
// in another way than is known.
bool make_tensor_type(const pybind11::object& type);

// torch._C._set_default_tensor_type, for types that make_tensor_type() changed.
void set_default_tensor_type(const pybind11::object& type);

} // namespace unstall
