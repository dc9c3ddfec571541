// Moves bytes between the ranks of a process group, over gloo. No virtual time passes meanwhile.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <deque>
#include <mutex>
#include <vector>

namespace unstall {

// The tensors are contiguous ones of the CPU. They may have any type: only their bytes are moved.
class Peers {
 public:
  Peers(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Sends to[i] to rank i and receives from[i] from rank i, at the same time. Tensors without elements are not moved,
  // nor are those of this rank for itself. All ranks must make their calls of exchange() in the same order.
  void exchange(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);
  // Returns, for each position in `values`, the largest value of all ranks.
  std::vector<int64_t> largest(const std::vector<int64_t>& values);

  // Single messages, separate from exchange(). send() does not wait for the receiver: it keeps `tensor`.
  void send(const at::Tensor& tensor, int to);
  void receive(const at::Tensor& tensor, int from);
  // Waits until the messages have been received. Gives up as soon as one message takes longer than this time.
  void finish(std::chrono::milliseconds within);

 private:
  c10::intrusive_ptr<c10d::Backend> gloo_;
  int rank_, size_;
  std::mutex exchanging_; // the process's threads take turns
  std::mutex sending_;
  std::deque<c10::intrusive_ptr<c10d::Work>> sent_;
};

// Calls finish() of all groups. Call it before the process ends: messages that are not received by then are lost.
void finish_messages();

} // namespace unstall
