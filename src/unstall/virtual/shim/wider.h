#pragma once
#include "substitutes.h"

#include <ATen/core/stack.h>

namespace unstall {

// Runs, for the CPU or for shapes alone, the CPU's kernel of `op`, or what stands in for it. Where the CPU has none for
// a type of halves and CUDA has, it computes in float32 and rounds: from the first call that shows it on, always.
void run_kernel(
    const c10::OperatorHandle& op, const Substitute* substitute, c10::DispatchKeySet keys, torch::jit::Stack* stack);

} // namespace unstall
