// The program's operators and annotations, on all devices, as the log has them.
//
// Operators of the CPU that compute have WORK in the log, by which their time is modelled; those that they are made of
// are part of it.
//
// Operators of the CPU that use pinned memory while a copy from or to it may still run: such a race is found only if
// the log has that use. Only programs with such copies pay for it.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace unstall {

// Logs each of them from now on.
void watch_operators();
// As many threads as the program has set for operators of the CPU; 0: it has set none.
void set_threads(int count);
// The outermost operator that this thread is in, below the autograd node if there is one: "" for none.
std::string operator_here();
// All operators and autograd nodes that this thread is in, outermost first.
std::vector<std::string> operators_here();

extern std::atomic<bool> copies_may_run;

// A copy of pinned memory that the host does not wait for.
void copy_started(int device, int64_t stream);
// The host has waited for the stream; for all of the device's streams.
void stream_finished(int device, int64_t stream);
void device_finished(int device);
// The host reads a tensor of the CPU now, without an operator.
void log_host_read(const at::Tensor& tensor, const char* name);

} // namespace unstall
