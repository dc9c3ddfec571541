// One piece of work on a device as the log has it: its signature (what the operator was called with, as a number) and
// the memory that it uses.
#pragma once
#include "log.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

struct _object;

namespace unstall {

// An operator's name as the log knows it. Looked up once for each operator.
struct OpName {
  OpName(std::string_view name, std::string_view overload = "");
  int32_t name, overload;
};

// Equal calls have equal numbers. Flat, so that it is cheap to hash and to compare: a tag with small values in its
// upper bits, then the rest.
class Signature {
 public:
  explicit Signature(OpName name);
  void add(const c10::IValue& value);
  void add(const at::Tensor& tensor);
  void outputs(); // everything added from now on is an output
  void precision(bool tf32); // of products in float32; after all else
  int32_t number() const;
  Signature of(OpName other) const; // the same call of another operator

 private:
  bool is_repeated(const at::Tensor& tensor);

  c10::SmallVector<int64_t, 128> key_;
  bool in_outputs_ = false;
  // The memory of each input: (storage, offset, elements).
  c10::SmallVector<std::tuple<const void*, int64_t, int64_t>, 8> memory_;
};

// As Python says it: "float32".
std::string dtype_name(c10::ScalarType type);

// A new list of those from `first` on, as log.py says. Needs the GIL.
_object* signatures_from(size_t first);

// The bytes of a tensor on a virtual device, or in pinned memory, that are read or written.
Use use_of(const at::Tensor& tensor, bool write);

// A piece of work on the device's current stream: one LAUNCH.
class Launch {
 public:
  Launch(OpName name, int device) : signature_(name), device_(device) {}
  void input(const c10::IValue& value, bool written = false);
  void output(const at::Tensor& tensor);
  // It is captured, as this node (devices.h).
  void captured_as(int64_t node) { node_ = node; }
  // It multiplies. If the factors are in float32: whether it rounds them to TF32.
  void multiplies(bool in_tf32) { in_tf32_ = in_tf32; }
  // Its library first searches for the fastest kernels, if this process has not yet done so for such a call.
  void searches(OpName search) { search_ = search; }
  bool log(); // returns whether the simulation of the launch includes the operator's read of a value

 private:
  void use(const at::Tensor& tensor, bool write);
  void log_search();
  Signature signature_;
  int device_;
  int64_t node_ = 0;
  bool in_outputs_ = false;
  std::optional<bool> in_tf32_;
  std::optional<OpName> search_;
  c10::SmallVector<Use, 16> uses_;
};

// The host reads a value: a copy of `bytes` that it waits for, as item() makes. `of`: where the value is, if not in
// memory of the operator's own.
// `simulated`: with a launch, already.
void log_read(int device, int64_t bytes, const Use* of = nullptr, bool simulated = false);

} // namespace unstall
