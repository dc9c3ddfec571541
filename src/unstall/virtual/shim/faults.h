// Faults of the devices as data: the kernel whose check failed, its arguments, and the first value that is wrong.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

struct _object;

namespace unstall {

struct WrongValue {
  std::string argument;
  std::variant<int64_t, double> value;
  std::vector<int64_t> position; // in the argument
  std::optional<int64_t> least, bound; // values from `least` on and below `bound` are right
  int64_t count = 0, of = 0; // wrong values, and values in all
};

struct Fault {
  struct Input {
    std::string name, dtype;
    std::vector<int64_t> shape;
  };
  std::string kernel, check; // the operator whose kernel checks, and the words of its check
  std::vector<Input> inputs;
  std::optional<WrongValue> wrong;
};

// Looks at the arguments, tensors of the CPU or of a virtual device, in one pass over the one that is to blame.
Fault fault_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, std::string check);

// Keeps it, and returns its number.
int64_t keep_fault(Fault fault);
// A new list of those from `first` on, as log.py says. Needs the GIL.
_object* faults_from(size_t first);

} // namespace unstall
