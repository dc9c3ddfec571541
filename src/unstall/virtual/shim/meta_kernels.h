// torch's Meta kernels in C++, which give shapes and strides by the code that the CPU's and CUDA's kernels call, too.
//
// When torch is imported, its Python code registers Meta kernels of its own over most of them. Those choose other
// strides if dimensions have size 1: `x / 2` of (1, 64, 16, 16) with strides (64, 1, 1024, 64), for one.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

namespace unstall {

// Keeps those that are registered now. Call it before torch is imported.
void keep_meta_kernels();
// nullptr if there is none.
const c10::SafeKernelFunction* meta_kernel(const c10::OperatorName& name);

} // namespace unstall
