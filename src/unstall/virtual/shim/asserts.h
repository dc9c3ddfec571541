// Assertions of CUDA's kernels: a wrong value, such as an index out of range, fails where the kernel runs. The first
// call that waits for the device raises the error, and every call after it.
#pragma once
#include "faults.h"
#include "simulator.h"

#include <ATen/core/operator_name.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace unstall {

// Whether CUDA's kernel of this operator checks values by assertions; the CPU's raises where it is called.
bool asserts_values(const c10::OperatorName& name);
// The message of `error` if the CPU's kernel of `name` raised it for a wrong value, else "".
std::string wrong_values(const c10::OperatorName& name, const std::exception& error);

// Where a graph's node was captured. Its number is that of its LAUNCH in the log.
struct Captured {
  int64_t node;
  std::string op;
  int32_t stack;
};
Captured captured_here();

// An assertion fails on the device, in work of the operator that this thread is in, or that was captured. Raises at once
// if CUDA_LAUNCH_BLOCKING is set.
void assertion_failed(int device, Fault fault, const std::optional<Captured>& captured = std::nullopt);

extern std::atomic<uint64_t> failed_devices, lost_devices; // a bit each; lost: a call raised the error

// Whether an assertion failed there: nothing is computed any more.
inline bool failed(int device) {
  return failed_devices.load(std::memory_order_relaxed) >> device & 1;
}
[[noreturn]] void raise_failure(int device);
// For calls that wait for the device.
inline void check_finished(int device) {
  raise_pending();
  if (failed(device)) raise_failure(device);
}
// For calls that give the device something to do, or to hold.
inline void check_usable(int device) {
  raise_pending();
  if (lost_devices.load(std::memory_order_relaxed) >> device & 1) raise_failure(device);
}

// From now on forked children cannot use the devices: calls raise CUDA's initialization error.
void refuse_forks();
void forked(); // in the child

// A wait for an event that was recorded before the assertion failed does not raise.
void recorded_after_failure(int64_t event, int device);
void check_event(int64_t event);

} // namespace unstall
