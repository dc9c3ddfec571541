#pragma once
#include <string>

namespace unstall {

// Logs each operator of the program, on all devices, and what it annotates.
void watch_operators();
// From now on with their inputs, which takes time at each.
void watch_inputs();
// The outermost operator that this thread is in, below the autograd node where there is one: "" for none.
std::string operator_here();

} // namespace unstall
