// What an operator was called with, as a number: equal calls have equal numbers.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <string_view>

struct _object;

namespace unstall {

// An operator's name as the log knows it. Made once an operator, as it is looked up.
struct OpName {
  OpName(std::string_view name, std::string_view overload = "");
  int32_t name, overload;
};

// Flat, so that it is cheap to hash and to compare: a tag with what is small in its upper bits, then the rest.
class Signature {
 public:
  explicit Signature(OpName name);
  void add(const c10::IValue& value);
  void add(const at::Tensor& tensor);
  void outputs(); // what is added from now on are outputs
  int32_t number() const;

 private:
  c10::SmallVector<int64_t, 128> key_;
};

// A new list of those from `first` on, as log.py says. Needs the GIL.
_object* signatures_from(size_t first);

} // namespace unstall
