// numerics="device": values as a GPU computes them. Sums are added up in another order than the CPU's, factors of
// products are rounded to TF32 if torch's settings say so, halves are rounded once, and atomics come in an order that a
// seed picks. All else is as the CPU computes it.
//
// The CPU's kernels still do the work: of sums whose terms were brought into another order.
#pragma once
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace unstall {

// Registers the kernels that do so; a second call does nothing.
void register_device_values();

// If numerics="device": while it lives, operators that this thread runs on the CPU have a device's values, also those
// that kernels and substitutes are made of.
class AsDevice {
 public:
  AsDevice();

 private:
  std::optional<c10::impl::ForceDispatchKeyGuard> included_;
};

// With which keys to run the CPU's kernel of `op`: with the one of such a kernel, if it has one and an AsDevice lives.
c10::DispatchKeySet keys_of_cpu(const c10::OperatorHandle& op);

// The setting of torch that says whether an operator rounds its factors to TF32, if there is one.
std::optional<at::Float32Op> tf32_setting(const c10::OperatorName& name);
// Whether it says so, and the device has TF32.
bool rounds_to_tf32(at::Float32Op setting);

} // namespace unstall
