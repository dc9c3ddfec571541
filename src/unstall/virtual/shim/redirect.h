// For kernels of the virtual GPU: tensors as the CPU's kernels want them and back, what to log, and how to register.
//
// An operator that CUDA computes otherwise than the CPU gets a substitute (substitutes.h), which graphs and skipped
// numerics need nothing more for. What is registered here is made of other operators, or computes nothing:
//
//   Tensor& zero_(Tensor& self) { return self.fill_(0); }
//   VIRTUAL_KERNELS(kernels) { kernels.impl("zero_", TORCH_FN(zero_)); }
//
// A kernel that computes by itself must keep() its work where a graph is captured (graphs.h), and ask settings().skip.
#pragma once
#include "devices.h"
#include "log.h"
#include "memory.h"
#include "signatures.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <string>
#include <unordered_set>

namespace unstall {

using at::Tensor;

// The same bytes as a tensor of the CPU, with no copy; a tensor of the CPU, or none, as it is. Valid while `tensor` is.
Tensor to_cpu(const Tensor& tensor);
// A tensor on `device` over the bytes of one of the CPU, which is owned from then on: a new allocation.
Tensor to_cuda(const Tensor& cpu, int device);
// What a kernel did to the twin `cpu` of `cuda` other than writing values: sizes, strides, a storage resized.
void follow(const Tensor& cuda, const Tensor& cpu);

// Runs `compute` as work of the virtual GPU: its time is not the program's, operators in it are none of the program's.
template <class F>
auto computed(F&& compute) {
  Computing computing;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return compute();
}

// Bytes of a tensor on a virtual device, or in pinned memory, that are read or written.
Use use_of(const Tensor& tensor, bool write);

// A piece of work on the device's current stream: one LAUNCH.
class Launch {
 public:
  Launch(OpName name, int device) : signature_(name), device_(device) {}
  void input(const c10::IValue& value, bool written = false);
  void output(const Tensor& tensor);
  void log();

 private:
  void use(const Tensor& tensor, bool write);
  Signature signature_;
  int device_;
  bool in_outputs_ = false;
  c10::SmallVector<Use, 16> uses_;
};

// The value was read by the host: a copy of `bytes` that it waits for, as item() makes.
void log_read(int device, int64_t bytes);

// Runs an operator's kernel of the CPU: what every operator does that has no kernel here.
void redirect(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Kernels for the key CUDA. What is named here gets no redirecting kernel.
class Kernels {
 public:
  explicit Kernels(torch::Library& library) : library_(library) {}
  template <class F>
  void impl(const std::string& name, F&& kernel) {
    library_.impl(name.c_str(), std::forward<F>(kernel));
    names_.insert("aten::" + name);
  }
  bool has(const std::string& name) const { return names_.count(name) != 0; }

 private:
  torch::Library& library_;
  std::unordered_set<std::string> names_;
};

struct KernelsOfFile {
  explicit KernelsOfFile(void (*add)(Kernels&));
};

#define VIRTUAL_KERNELS(name)                                               \
  static void virtual_kernels_of_file(::unstall::Kernels& name);            \
  static ::unstall::KernelsOfFile virtual_kernels(virtual_kernels_of_file); \
  static void virtual_kernels_of_file(::unstall::Kernels& name)

// Registers all of them, and a redirecting kernel for each other operator that has a kernel of the CPU.
void register_kernels();

} // namespace unstall
