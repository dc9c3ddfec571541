// One call of an operator of the virtual GPU.
#pragma once
#include "launches.h"
#include "refusals.h"
#include "substitutes.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace unstall {

// What is known of an operator before it is called.
struct About {
  explicit About(const c10::OperatorHandle& op);

  c10::OperatorName name;
  OpName number;
  c10::SmallVector<bool, 8> written, out; // of each argument
  bool any_written = false, view = false, draws = false, host_tensors = false, scalars = false,
       overwrites = false, asserts = false, checks = false, structured = false, divides = false;
  bool elementwise = false; // and torch has a Meta kernel in Python alone
  int generator = -1, output_size = -1; // which arguments these are
  Refusals refusals;
  std::optional<at::Float32Op> tf32; // see tf32_setting()
  // Of the backward of a convolution: its first gradient, and the others, as the log names them if they are apart.
  std::optional<OpName> first_gradient, other_gradients;
  std::optional<OpName> search; // of cuDNN, for the fastest kernels of a shape: torch.backends.cudnn.benchmark
  int64_t reads = 0; // bytes that CUDA's kernel copies to the host and waits for
  const Substitute* substitute; // nullptr: the CPU's own kernel
  const c10::SafeKernelFunction* shapes; // torch's Meta kernel in C++; nullptr: it has none, or a substitute is used

  bool stays_on_host(size_t result) const { return substitute && substitute->host_outputs >> result & 1; }
};

// The same for all calls: it lives as long as the process.
const About& about_of(const c10::OperatorHandle& op);

// The device of a call with these arguments. Raises, as CUDA does, if they are on several devices.
int device_of(const About& about, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

// Replaces the arguments on the stack by results. The CPU's kernel computes them; if numerics are skipped or a graph is
// captured, the results have shapes only. `about` must live as long as the process.
void call(const About& about, const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs, for the CPU or for shapes alone, the CPU's kernel of `op` or its substitute. If CUDA has a kernel for a half
// type and the CPU has none, this computes in float32 and rounds: from the first call that fails on. So it does for
// products of float16, whose kernels are slow. If the CPU's lacks another type, the error is CUDA's.
void run_kernel(
    const c10::OperatorHandle& op, const Substitute* substitute, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// The same, in float32: halves are widened, and results rounded to `type`.
void run_wider(
    const c10::OperatorHandle& op, const Substitute* substitute, c10::DispatchKeySet keys, torch::jit::Stack* stack,
    at::ScalarType type);

} // namespace unstall
