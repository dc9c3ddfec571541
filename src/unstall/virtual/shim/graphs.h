// CUDA graphs: while a stream is captured into, what runs on it is kept and computes nothing; a replay computes it.
#pragma once
#include <cstdint>
#include <functional>

namespace unstall {

bool capturing(int device, int64_t stream);
bool capturing_here(int device); // the current stream
// For the graph that this device's current stream is captured into: what a replay is to do at this place.
void keep(int device, std::function<void()> node);
// An event that was recorded on a captured stream takes the streams that wait for it into the capture.
void recorded_in_capture(int64_t event, int device, int64_t stream);
void waited_in_capture(int64_t event, int device, int64_t stream);
// Raises CUDA's error where a call that waits for the device is made while something is captured.
void refuse_in_capture();

void capture_begin(int64_t graph, int device, int64_t stream, int64_t pool);
void capture_end(int64_t graph);
void replay(int64_t graph, int device, int64_t stream);
void free_graph(int64_t graph);

} // namespace unstall
