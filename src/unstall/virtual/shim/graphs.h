// CUDA graphs: what is captured, and running it again.
#pragma once
#include <cstdint>

namespace unstall {

bool capturing(int device, int64_t stream);
// Some stream of this process is being captured into.
bool any_capture();
// Raises CUDA's error where a call that a capture does not allow is made while one runs.
void refuse_in_capture(const char* call);

void capture_begin(int64_t graph, int device, int64_t stream, int64_t pool);
void capture_end(int64_t graph);
void replay(int64_t graph, int device, int64_t stream);
void free_graph(int64_t graph);

} // namespace unstall
