// The values of NCCL's collectives, on tensors of the CPU or of the virtual GPU. Each rank calls the same function.
#pragma once
#include "peers.h"
#include "tensors.h"

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace unstall {

using Tensors = std::vector<Tensor>;

// The elements of a tensor in the order in which they lie in memory, as a view on the CPU.
Tensor flat(const Tensor& tensor);
Tensors flattened(const Tensors& tensors);

// Sums add up the ranks in order, so they are the same in each run, and on each rank.
class Values {
 public:
  Values(Peers& peers, int rank, int size) : peers_(peers), rank_(rank), size_(size) {}

  void all_reduce(const Tensor& tensor, const c10d::ReduceOp& op);
  void reduce(const Tensor& tensor, int root, const c10d::ReduceOp& op);
  void broadcast(const Tensor& tensor, int root);
  void gather(const Tensor& input, const Tensors& outputs, int root);
  void scatter(const Tensor& output, const Tensors& inputs, int root);

  // Each list has one part for each rank, as flat() returns it.
  void all_gather(const Tensor& input, const Tensors& outputs);
  void reduce_scatter(Tensors inputs, const Tensor& output, const c10d::ReduceOp& op);
  void all_to_all(const Tensors& inputs, const Tensors& outputs);
  // Each rank gets as many rows as `rows` says, or all get equally many if `rows` is empty.
  Tensors split(const Tensor& tensor, const std::vector<int64_t>& rows) const;

 private:
  Tensors none() const { return Tensors(size_t(size_)); }
  Tensors one(int rank, const Tensor& tensor) const;
  Tensors from_all(const Tensor& mine, const Tensors& to);
  void receive_all(const Tensor& mine, const Tensors& into, const Tensors& to);

  Peers& peers_;
  int rank_, size_;
};

} // namespace unstall
