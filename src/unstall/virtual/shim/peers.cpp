#define USE_C10D_GLOO // as torch is built
#include "peers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <set>

namespace unstall {
namespace {

constexpr std::chrono::seconds AT_THE_END{60};

struct All {
  std::mutex lock;
  std::set<Peers*> peers;
};

All& all() {
  static auto* all = new All;
  return *all;
}

constexpr int EXCHANGE = 0, MESSAGE = 1; // gloo's tags: messages of a tag arrive in the order in which they were sent
constexpr size_t MOST_SENT = 64; // messages that are kept: gloo only says that one has arrived by waiting for it

} // namespace

Peers::Peers(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) : rank_(rank), size_(size) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("virtual", store), rank, size, options);
  std::lock_guard guard(all().lock);
  all().peers.insert(this);
}

Peers::~Peers() {
  {
    std::lock_guard guard(all().lock);
    all().peers.erase(this);
  }
  finish(AT_THE_END);
}

void Peers::exchange(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  at::RecordFunctionGuard unrecorded(false);
  std::lock_guard guard(exchanging_);
  std::vector<c10::intrusive_ptr<c10d::Work>> under_way;
  auto moves = [&](const at::Tensor& tensor, int rank) { return rank != rank_ && tensor.defined() && tensor.numel(); };
  for (int rank = 0; rank < int(from.size()); rank++) {
    std::vector<at::Tensor> one{from[rank]};
    if (moves(from[rank], rank)) under_way.push_back(gloo_->recv(one, rank, EXCHANGE));
  }
  for (int rank = 0; rank < int(to.size()); rank++) {
    std::vector<at::Tensor> one{to[rank]};
    if (moves(to[rank], rank)) under_way.push_back(gloo_->send(one, rank, EXCHANGE));
  }
  for (const auto& work : under_way) work->wait();
}

std::vector<int64_t> Peers::largest(const std::vector<int64_t>& values) {
  at::Tensor mine = at::tensor(values, at::kLong);
  std::vector<at::Tensor> from;
  for (int rank = 0; rank < size_; rank++) from.push_back(rank == rank_ ? mine : at::empty_like(mine));
  exchange(std::vector<at::Tensor>(size_t(size_), mine), from);
  auto result = values;
  for (const auto& theirs : from)
    for (size_t i = 0; i < values.size(); i++) result[i] = std::max(result[i], theirs.const_data_ptr<int64_t>()[i]);
  return result;
}

void Peers::send(const at::Tensor& tensor, int to) {
  at::RecordFunctionGuard unrecorded(false);
  std::vector<at::Tensor> one{tensor};
  std::lock_guard guard(sending_);
  if (tensor.numel()) sent_.push_back(gloo_->send(one, to, MESSAGE));
  if (sent_.size() <= MOST_SENT) return;
  sent_.front()->wait();
  sent_.pop_front();
}

void Peers::finish(std::chrono::milliseconds within) {
  std::lock_guard guard(sending_);
  try {
    for (; !sent_.empty(); sent_.pop_front()) sent_.front()->wait(within);
  } catch (const std::exception&) { // the receiver has ended, or does not receive
    sent_.clear();
  }
}

void finish_messages() {
  std::lock_guard guard(all().lock);
  for (Peers* peers : all().peers) peers->finish(AT_THE_END);
}

void Peers::receive(const at::Tensor& tensor, int from) {
  at::RecordFunctionGuard unrecorded(false);
  std::vector<at::Tensor> one{tensor};
  if (tensor.numel()) gloo_->recv(one, from, MESSAGE)->wait();
}

} // namespace unstall
