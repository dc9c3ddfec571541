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

// What a call waits for, beside streams by their ids.
constexpr int64_t ALL_STREAMS = -1, NO_STREAM = -2;
// Whether CUDA refuses a call that waits while something is captured: in any mode for what is captured itself, and else
// in any thread if a capture is "global", in the thread that began it if it is "thread_local". The capture is spoiled.
bool refused_in_capture(int device, int64_t stream);
bool refused_in_capture(int64_t event);
// Raises CUDA's error for it.
void refuse_in_capture(int device, int64_t stream);

enum class CaptureMode { GLOBAL, THREAD_LOCAL, RELAXED };
void capture_begin(int64_t graph, int device, int64_t stream, int64_t pool, CaptureMode mode);
void capture_end(int64_t graph);
void replay(int64_t graph, int device, int64_t stream);
void free_graph(int64_t graph);

} // namespace unstall
