// Tensors of the virtual GPU as tensors of the CPU, or of the device meta, which has shapes and no values; and back.
#pragma once
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "memory.h"

namespace unstall {

using at::Tensor;

// The same bytes as a tensor of the CPU, without a copy; valid while `tensor` is. A tensor of the CPU, or none, as it
// is.
Tensor to_cpu(const Tensor& tensor);
// A tensor on `device` that takes over the bytes of one of the CPU: a new allocation.
Tensor to_cuda(const Tensor& cpu, int device);
Tensor empty_as(const Tensor& cpu, int device); // with memory of its own
// A tensor of the virtual GPU like `cpu`, over a storage that exists.
Tensor over(const Tensor& cpu, c10::Storage storage);
// Whether it is a list of tensors of which some may be missing, as indices are. In TorchScript, such a list has another
// type than in C++, which IValue::isOptionalTensorList() does not know.
bool is_list_of_tensors(const c10::IValue& value);
c10::List<std::optional<Tensor>> optional_tensors(const c10::IValue& value);
// Gives `cuda` the sizes, strides and storage that a kernel gave its CPU tensor `cpu`.
void follow(const Tensor& cuda, const Tensor& cpu);

// Only shapes: for graphs that are captured, and for large tensors if numerics are skipped.
constexpr int64_t MOST_KNOWN = 65536; // elements of a tensor that is computed even if numerics are skipped

Tensor to_meta(const Tensor& tensor);
// A new tensor on `device` of a meta tensor's shape.
Tensor from_meta(const Tensor& meta, int device);
// Gives `cuda` the sizes and strides that a kernel gave its meta tensor; its storage grows if that needs more.
void follow_meta(const Tensor& cuda, const Tensor& meta);

// Whether a tensor's values were computed. A CPU tensor's always are.
bool known(const Tensor& tensor);
Origin origin_of(const Tensor& tensor);
Known known_of(const Tensor& tensor); // nullptr for memory that is not ours
// For every tensor that shares the storage.
void set_known(const Tensor& tensor, bool known);
// After values of this origin were written to a tensor: a storage that it does not cover is as the worse of its parts.
void was_written(const Tensor& tensor, Origin origin);
void was_written(const Known& storage, bool whole, Origin origin);
bool covers_storage(const Tensor& tensor);
// The program read a value that was not computed: warns, once for each place in the program.
void warn_unknown();
// The numbers of the stacks at which the program read such values, in order of the first read.
std::vector<int32_t> unknown_reads();
// How many of so many elements a search finds if their values were not computed: half, but nothing any more at a place
// that has searched very often, since a program may search until nothing is left.
int64_t assumed_found(int64_t elements);
// Such a search was made: warns, once for each place in the program.
void warn_assumed();
// The numbers of the stacks of such searches, in order of the first.
std::vector<int32_t> assumed_finds();

} // namespace unstall
