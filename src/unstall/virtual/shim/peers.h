// Bytes from rank to rank of a process group, over gloo. No virtual time passes for them.
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

  // Sends to[i] to rank i and receives from[i] from it, at the same time. Tensors without elements are not moved, and
  // the own rank's are left alone. All ranks must call it in the same order.
  void exchange(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);
  // The largest of all ranks' values, one by one.
  std::vector<int64_t> largest(const std::vector<int64_t>& values);

  // Messages, apart from those of exchange(). send() does not wait for the receiver: it keeps `tensor`.
  void send(const at::Tensor& tensor, int to);
  void receive(const at::Tensor& tensor, int from);
  // Waits until the messages have been received, or one of them has not within this time.
  void finish(std::chrono::milliseconds within);

 private:
  c10::intrusive_ptr<c10d::Backend> gloo_;
  int rank_, size_;
  std::mutex exchanging_; // the process's threads take turns
  std::mutex sending_;
  std::deque<c10::intrusive_ptr<c10d::Work>> sent_;
};

// finish() of all groups: for the end of the process, with which the messages would be lost.
void finish_messages();

} // namespace unstall
