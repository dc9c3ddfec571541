// Operators on sparse tensors of the virtual GPU.
#pragma once
#include "kernels.h"

namespace unstall {

// Runs the CPU's kernel of an operator that takes or returns sparse tensors. `keys`: those of the virtual GPU's call.
void redirect_sparse(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Kernels for the keys of sparse tensors that are made of operators on dense ones.
void register_sparse_kernels();

} // namespace unstall
