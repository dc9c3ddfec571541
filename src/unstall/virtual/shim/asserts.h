// Assertions of CUDA's kernels: a value that is wrong, such as an index out of range, fails where the kernel runs. No
// call is told before one that waits for the device; from then on every call is.
#pragma once
#include "keeper.h"

#include <ATen/core/operator_name.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

namespace unstall {

// Whether CUDA's kernel of this operator checks values by assertions; the CPU's raises where it is called.
bool asserts_values(const c10::OperatorName& name);
// What the CPU's kernel of `name` says of the values it got, if that is what `error` is of: else "".
std::string wrong_values(const c10::OperatorName& name, const std::exception& error);

// An assertion fails on the device, in work of the operator that this thread is in. Where CUDA_LAUNCH_BLOCKING is set,
// raises at once.
void assertion_failed(int device, const std::string& why);

extern std::atomic<uint64_t> failed_devices, lost_devices; // a bit each; lost: the program was told

// Whether an assertion failed there: nothing is computed any more.
inline bool failed(int device) {
  return failed_devices.load(std::memory_order_relaxed) >> device & 1;
}
[[noreturn]] void raise_failure(int device);
// For calls that wait for the device.
inline void check_finished(int device) {
  check_told();
  if (failed(device)) raise_failure(device);
}
// For calls that give the device something to do, or to hold.
inline void check_usable(int device) {
  check_told();
  if (lost_devices.load(std::memory_order_relaxed) >> device & 1) raise_failure(device);
}

// From now on children that are forked cannot use the devices: what they inherited raises CUDA's initialization error.
void refuse_forks();
void forked(); // in the child

// A wait for an event that was recorded before the assertion failed does not tell of it.
void recorded_after_failure(int64_t event, int device);
void check_event(int64_t event);

} // namespace unstall
