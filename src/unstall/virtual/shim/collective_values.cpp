#include "collective_values.h"

#include <ATen/ATen.h>

namespace unstall {
namespace {

using c10d::ReduceOp;

// float16 and bfloat16 are added up in float32 and rounded once.
Tensor adding(const Tensor& values) {
  auto type = values.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? values.to(at::kFloat) : values;
}

// PREMUL_SUM: each rank multiplies its values before they are added up.
Tensor multiplied(const Tensor& values, const ReduceOp& op) {
  if (op.op_ != ReduceOp::PREMUL_SUM) return values;
  const auto& by = static_cast<const c10d::PreMulSumSupplement&>(*op.supplement_);
  Tensor wide = adding(values);
  wide = by.tensor_factor.defined() ? wide.mul(to_cpu(by.tensor_factor)) : wide.mul(by.double_factor);
  return wide.to(values.scalar_type());
}

Tensor reduced(const Tensors& of, const ReduceOp& op) {
  auto type = of[0].scalar_type();
  Tensor all = adding(of[0]).clone();
  for (size_t i = 1; i < of.size(); i++) {
    Tensor next = adding(of[i]);
    switch (op.op_) {
      case ReduceOp::SUM: case ReduceOp::AVG: case ReduceOp::PREMUL_SUM: all.add_(next); break;
      case ReduceOp::PRODUCT: all.mul_(next); break;
      case ReduceOp::MIN: all = at::minimum(all, next); break;
      case ReduceOp::MAX: all = at::maximum(all, next); break;
      default: TORCH_CHECK(false, "Cannot use ReduceOp.BAND, BOR or BXOR with NCCL");
    }
  }
  if (op.op_ == ReduceOp::AVG) {
    if (at::isIntegralType(type, true)) all.div_(int64_t(of.size()), "floor");
    else all.div_(double(of.size()));
  }
  return all.to(type);
}

} // namespace

Tensor flat(const Tensor& tensor) {
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "Tensors must be contiguous");
  return to_cpu(tensor).as_strided({tensor.numel()}, {1});
}

Tensors flattened(const Tensors& tensors) {
  Tensors all;
  for (const auto& tensor : tensors) all.push_back(flat(tensor));
  return all;
}

Tensors Values::one(int rank, const Tensor& tensor) const {
  Tensors all = none();
  all[size_t(rank)] = tensor;
  return all;
}

// Returns the values that each rank has for this rank. `mine` is this rank's part for itself, `to` what it sends.
Tensors Values::from_all(const Tensor& mine, const Tensors& to) {
  Tensors from;
  for (int rank = 0; rank < size_; rank++) from.push_back(rank == rank_ ? mine : at::empty_like(mine));
  peers_.exchange(to, from);
  return from;
}

void Values::receive_all(const Tensor& mine, const Tensors& into, const Tensors& to) {
  peers_.exchange(to, into);
  into[size_t(rank_)].copy_(mine);
}

// Each rank adds up one part of the elements for all ranks.
void Values::all_reduce(const Tensor& tensor, const ReduceOp& op) {
  Tensors parts = flat(tensor).tensor_split(size_), to;
  for (const auto& part : parts) to.push_back(multiplied(part, op));
  Tensor sum = reduced(from_all(to[size_t(rank_)], to), op);
  receive_all(sum, parts, Tensors(size_t(size_), sum));
}

void Values::reduce(const Tensor& tensor, int root, const ReduceOp& op) {
  Tensor mine = multiplied(flat(tensor), op);
  if (rank_ == root) flat(tensor).copy_(reduced(from_all(mine, none()), op));
  else peers_.exchange(one(root, mine), none());
}

void Values::broadcast(const Tensor& tensor, int root) {
  Tensor values = flat(tensor);
  if (rank_ == root) peers_.exchange(Tensors(size_t(size_), values), none());
  else peers_.exchange(none(), one(root, values));
}

void Values::gather(const Tensor& input, const Tensors& outputs, int root) {
  if (rank_ == root) receive_all(flat(input), flattened(outputs), none());
  else peers_.exchange(one(root, flat(input)), none());
}

void Values::scatter(const Tensor& output, const Tensors& inputs, int root) {
  if (rank_ != root) return peers_.exchange(none(), one(root, flat(output)));
  Tensors to = flattened(inputs);
  peers_.exchange(to, none());
  flat(output).copy_(to[size_t(rank_)]);
}

void Values::all_gather(const Tensor& input, const Tensors& outputs) {
  Tensor mine = flat(input);
  receive_all(mine, outputs, Tensors(size_t(size_), mine));
}

void Values::reduce_scatter(Tensors inputs, const Tensor& output, const ReduceOp& op) {
  for (auto& part : inputs) part = multiplied(part, op);
  flat(output).copy_(reduced(from_all(inputs[size_t(rank_)], inputs), op));
}

void Values::all_to_all(const Tensors& inputs, const Tensors& outputs) {
  receive_all(inputs[size_t(rank_)], outputs, inputs);
}

Tensors Values::split(const Tensor& tensor, const std::vector<int64_t>& rows) const {
  if (rows.empty()) return flat(tensor).chunk(size_);
  int64_t row = tensor.numel() / std::max<int64_t>(tensor.size(0), 1);
  std::vector<int64_t> elements;
  for (int64_t count : rows) elements.push_back(count * row);
  return flat(tensor).split_with_sizes(elements);
}

} // namespace unstall
