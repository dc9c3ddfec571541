// Random numbers of the virtual devices: a seed and an offset, as those of CUDA are.
#pragma once
#include <ATen/core/Generator.h>

namespace unstall {

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);

// For one operator: a generator of the CPU whose numbers follow from the seed and offset of this one, which moves on.
// Raises as CUDA does where a generator of another device type was given.
at::Generator draw_from(const std::optional<at::Generator>& generator, int device);

// The CPU's default generator is a virtual device's for as long as this lives: for kernels that take none. What the
// program draws on the CPU does not change by it, nor the device's where the kernel draws nothing.
class InsteadOfDefault {
 public:
  explicit InsteadOfDefault(int device);
  ~InsteadOfDefault();
  InsteadOfDefault(const InsteadOfDefault&) = delete;
  InsteadOfDefault& operator=(const InsteadOfDefault&) = delete;

 private:
  struct State;
  State* before_;
  int device_;
};

} // namespace unstall
