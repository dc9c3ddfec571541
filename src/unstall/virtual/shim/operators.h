#pragma once

namespace unstall {

// Logs each operator of the program, on all devices, and what it annotates.
void watch_operators();

} // namespace unstall
