// For kernels of the virtual GPU: how to compute with the CPU, and how to register.
//
// An operator that CUDA computes otherwise than the CPU gets a substitute (substitutes.h); graphs and skipped numerics
// then work by themselves. A kernel registered here is made of other operators, or computes nothing:
//
//   Tensor& zero_(Tensor& self) { return self.fill_(0); }
//   VIRTUAL_KERNELS(kernels) { kernels.impl("zero_", TORCH_FN(zero_)); }
//
// A kernel that computes by itself must keep() its work while a graph is captured (devices.h) and check
// settings().skip.
#pragma once
#include "devices.h"
#include "launches.h"
#include "log.h"
#include "memory.h"
#include "tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <string>
#include <unordered_set>

namespace unstall {

// Has this thread compute with as many threads as the program's first one: with another number, sums are added up in
// another order. A thread that torch starts, such as autograd's, has the number that was set last, by any thread.
void compute_as_first_thread();

// Runs `compute` as work of the virtual GPU: its time and its operators are not the program's.
template <class F>
auto computed(F&& compute) {
  Computing computing;
  compute_as_first_thread();
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return compute();
}

// Runs an operator's CPU kernel: the default for every operator without a kernel here.
void redirect(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Where kernels for a key are registered; they stay until the process ends.
torch::Library& library(const char* ns, c10::DispatchKey key);

// Kernels for the key CUDA. An operator named here gets no redirecting kernel.
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

// Registers all of them, and a redirecting kernel for each other operator that has a CPU kernel.
void register_kernels();

// See traced.cpp.
void register_traced_convolutions();

} // namespace unstall
