// all_reduce of gloo on tensors of the virtual GPU. gloo's other collectives are the same code in every build of torch.
// This one, and what is made of it, torch looks up by the type of device; what there is for CUDA is in builds for CUDA
// alone, and in others torch takes null for it and crashes. As there (ProcessGroupGlooCuda.cpp), values are reduced in
// pinned memory of the host, and the copies there and back are on streams of their own.
#include "redirect.h"

#define USE_C10D_GLOO // as torch is built
#include <ATen/ops/empty_strided.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Registry.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

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

  // Once it has run, on whichever thread goes on with the tensors.
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

} // namespace
} // namespace unstall
