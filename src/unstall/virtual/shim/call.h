// One call of an operator of the virtual GPU.
#pragma once
#include "about.h"

#include <ATen/core/stack.h>

namespace unstall {

// Replaces the arguments on the stack by results: computed by the kernel of the CPU; only their shapes, where numerics
// are skipped or a graph is captured. `about` stays for as long as the process does.
void call(const About& about, const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace unstall
