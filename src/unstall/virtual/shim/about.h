// What is known of an operator whatever it is called with.
#pragma once
#include "signatures.h"
#include "substitutes.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace unstall {

struct About {
  explicit About(const c10::OperatorHandle& op);

  c10::OperatorName name;
  OpName number;
  c10::SmallVector<bool, 8> written, out; // of each argument
  bool any_written = false, view = false, draws = false, host_tensors = false, scalars = false,
       overwrites = false, asserts = false;
  int generator = -1, told_size = -1; // arguments
  int64_t reads = 0;
  const Substitute* substitute; // nullptr: the CPU's own kernel

  bool stays_on_host(size_t result) const { return substitute && substitute->host_outputs >> result & 1; }
};

} // namespace unstall
