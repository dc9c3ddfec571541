// gloo's all_reduce on tensors of the virtual GPU. gloo's other collectives are the same code in every build of torch.
// all_reduce, and collectives made of it, are looked up by the type of device; only CUDA builds have an entry for CUDA,
// and other builds crash on a null pointer. As in ProcessGroupGlooCuda.cpp, values are reduced in pinned memory of the
// host, with the copies there and back on streams of their own.
#include "kernels.h"

#define USE_C10D_GLOO // as torch is built
#include <ATen/ops/empty_strided.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Registry.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <map>

namespace c10d {

// From ProcessGroupGlooDetail.hpp, which cannot be compiled without all of gloo's headers.
TORCH_DECLARE_TYPED_REGISTRY(
    GlooAllreduceRegistry, c10::DeviceType, ProcessGroupGloo::AsyncWork, c10::intrusive_ptr,
    std::shared_ptr<gloo::Context>, std::vector<at::Tensor>&, ReduceOp, uint32_t, uint64_t, std::chrono::milliseconds);
TORCH_API void initializeStreamsEvents(
    const std::vector<at::Tensor>& tensors, std::vector<c10::Stream>& streams, std::vector<c10::Event>& events);

} // namespace c10d

namespace unstall {
namespace {

using c10d::ProcessGroupGloo;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<ProcessGroupGloo::AsyncWork>;

Tensor pinned_like(const Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU).pinned_memory(true));
}

class AllReduce final : public ProcessGroupGloo::AsyncWork {
 public:
  AllReduce(
      const std::shared_ptr<gloo::Context>& context, Tensors& tensors, c10d::ReduceOp op, uint32_t tag, uint64_t number,
      std::chrono::milliseconds timeout)
      : AsyncWork(context, {tensors}, c10d::OpType::ALLREDUCE, number, timeout, "gloo:all_reduce", tensors),
        tensors_(tensors) {
    c10d::initializeStreamsEvents(tensors_, streams_, copied_back_);
    c10::OptionalStreamGuard on;
    for (size_t i = 0; i < tensors_.size(); i++) {
      on.reset_stream(streams_[i]);
      on_host_.push_back(pinned_like(tensors_[i]).copy_(tensors_[i], true));
    }
    by_host_ = c10d::GlooAllreduceRegistry()->Create(c10::kCPU, context, on_host_, op, tag, number, timeout);
  }

  // On a thread of gloo's.
  void run() override {
    for (const auto& stream : streams_) stream.synchronize();
    by_host_->run();
    c10::OptionalStreamGuard on;
    for (size_t i = 0; i < tensors_.size(); i++) {
      on.reset_stream(streams_[i]);
      tensors_[i].copy_(on_host_[i], true);
      copied_back_[i].record(streams_[i]);
    }
  }

  // After run(), on the thread that uses the tensors next.
  void synchronize() override {
    c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
    for (size_t i = 0; i < tensors_.size(); i++) copied_back_[i].block(cuda.getStream(tensors_[i].device()));
  }

  const Tensors getInputTensors() override { return tensors_; }
  const Tensors getOutputTensors() override { return tensors_; }

 private:
  Tensors tensors_, on_host_;
  WorkPtr by_host_;
  std::vector<c10::Stream> streams_;
  std::vector<c10::Event> copied_back_;
};

WorkPtr all_reduce(
    std::shared_ptr<gloo::Context> context, Tensors& tensors, c10d::ReduceOp op, uint32_t tag, uint64_t number,
    std::chrono::milliseconds timeout) {
  return c10::make_intrusive<AllReduce>(context, tensors, std::move(op), tag, number, timeout);
}

c10d::RegistererGlooAllreduceRegistry registered(c10::kCUDA, c10d::GlooAllreduceRegistry(), all_reduce);

// The timer that DistributedDataParallel needs. torch looks it up by the type of device; only CUDA builds have one for
// CUDA (reducer_cuda.cpp).
class DdpTimer final : public c10d::Timer {
 public:
  explicit DdpTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    c10d::Timer::record(event);
    c10::Event& on_device = recorded_.try_emplace(event, c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT).first->second;
    on_device.record(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device_));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto from = recorded_.find(start), to = recorded_.find(end);
    if (from == recorded_.end() || to == recorded_.end()) return {};
    if (!from->second.query() || !to->second.query()) return {};
    double milliseconds = from->second.elapsedTime(to->second);
    if (milliseconds < 0) return {};
    return int64_t(milliseconds * 1e6);
  }

 private:
  c10::Device device_;
  std::map<Event, c10::Event> recorded_;
};

} // namespace
} // namespace unstall

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, unstall::DdpTimer);
} // namespace c10d
