// What a call of NCCL returns, and the options of its groups.
#pragma once

#include "kernels.h"
#include "collective_values.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace unstall {

inline c10::Stream stream_of(int device, int64_t stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, c10::DeviceIndex(device)), stream);
}

inline c10::Stream current_stream_of(int device) {
  return stream_of(device, current_stream(device));
}

class NcclWork final : public c10d::Work {
 public:
  NcclWork(int rank, c10d::OpType type, int device, Tensors outputs, Tensors kept, bool holds_host, uint64_t number)
      : Work(rank, type), ended_(c10::kCUDA), device_(device), outputs_(std::move(outputs)), kept_(std::move(kept)),
        holds_host_(holds_host), number_(number) {}

  // The collective was launched on this stream.
  void ends_on(c10::Stream stream) {
    ended_.record(stream);
    c10::StreamGuard on(stream);
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{stream.device()});
    future_->markCompleted(at::IValue(outputs_));
  }

  bool isCompleted() override { return ended_.query(); }
  bool isSuccess() const override { return true; }
  void synchronize() override { ended_.block(current_stream_of(device_)); }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    if (holds_host_) sync_stream(device_, current_stream(device_));
    std::lock_guard guard(mutex_);
    kept_.clear(); // from now on, streams tell the allocator when memory may be used again
    return true;
  }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return number_; }

 private:
  c10::Event ended_;
  int device_;
  Tensors outputs_, kept_;
  bool holds_host_;
  uint64_t number_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

struct NcclOptions : c10d::Backend::Options {
  explicit NcclOptions(bool high_priority = false) : Options("nccl"), is_high_priority_stream(high_priority) {}
  bool is_high_priority_stream;
};

} // namespace unstall
