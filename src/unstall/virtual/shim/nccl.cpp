// torch's process group over NCCL, for ranks that each have a virtual GPU. It follows ProcessGroupNCCL.cpp: which stream
// a collective runs on, what it waits for, and what waits for it. Here are torch's calls, and the values that each moves;
// nccl_launch.cpp launches them.
#include "gil.h" // first: it includes Python.h

#include "nccl.h"

#include "collective_values.h"
#include "nccl_launch.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

namespace py = pybind11;

namespace unstall {
namespace {

using c10d::OpType;
using c10d::ReduceOp;

const char* word_of(const ReduceOp& op) {
  switch (op.op_) {
    case ReduceOp::AVG: return "avg";
    case ReduceOp::PRODUCT: return "product";
    case ReduceOp::MIN: return "min";
    case ReduceOp::MAX: return "max";
    case ReduceOp::PREMUL_SUM: return "premul_sum";
    default: return "sum";
  }
}

class VirtualNccl final : public LaunchingNccl {
 public:
  VirtualNccl(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<NcclOptions> options)
      : LaunchingNccl(store, rank, size, std::move(options)), values_(peers_, rank, size) {}

  const std::string getBackendName() const override { return "nccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
  void waitForPendingWorks() override {}
  void enableCollectivesTiming() override {}

  // Makes a group of some ranks of this group. The ranks meet when it is made.
  c10::intrusive_ptr<Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& options) override {
    splits_++;
    auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) return nullptr;
    auto with = c10::make_intrusive<NcclOptions>(options_->is_high_priority_stream);
    with->group_name = options->group_name;
    with->group_desc = options->group_desc;
    with->timeout = options->timeout;
    for (int rank : ranks) with->global_ranks_in_group.push_back(members().at(size_t(rank)));
    auto group = c10::make_intrusive<VirtualNccl>(store, int(own - ranks.begin()), int(ranks.size()), with);
    group->setGroupDesc(with->group_desc);
    return group;
  }
  int splits() const { return splits_; }

  void startCoalescing() override {
    coalescing_ = true;
    coalesced_async_ = false;
  }

  WorkPtr endCoalescing() override {
    coalescing_ = false;
    auto calls = std::move(coalesced_);
    coalesced_.clear();
    if (calls.empty()) return nullptr;
    return run(OpType::COALESCED, std::move(calls), coalesced_async_);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return add({OpType::ALLREDUCE, "allreduce", {only(tensors)}, {only(tensors)},
                [this, t = only(tensors), op = opts.reduceOp] { values_.all_reduce(t, op); }, word_of(opts.reduceOp)},
               opts.asyncOp);
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    std::vector<Call> calls;
    for (const auto& t : tensors)
      calls.push_back({OpType::ALLREDUCE, "allreduce_coalesced", {t}, {t},
                       [this, t, op = opts.reduceOp] { values_.all_reduce(t, op); }, word_of(opts.reduceOp)});
    return run(OpType::COALESCED, std::move(calls), opts.asyncOp);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    Tensor t = only(tensors);
    return add({OpType::BROADCAST, "broadcast", {t}, {t},
                [this, t, root = int(opts.rootRank)] { values_.broadcast(t, root); }},
               opts.asyncOp);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    Tensor t = only(tensors);
    return add({OpType::REDUCE, "reduce", {t}, {t},
                [this, t, root = int(opts.rootRank), op = opts.reduceOp] { values_.reduce(t, root, op); },
                word_of(opts.reduceOp)},
               opts.asyncOp);
  }

  WorkPtr allgather(
      std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    Tensor input = only(inputs);
    return add({OpType::ALLGATHER, "all_gather", {input}, outputs[0],
                [this, input, outs = outputs[0]] { values_.all_gather(input, flattened(outs)); }},
               opts.asyncOp);
  }

  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) override {
    return add(gather_into("_allgather_base", OpType::_ALLGATHER_BASE, output, input), opts.asyncOp);
  }

  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++)
      calls.push_back(gather_into("allgather_into_tensor_coalesced", OpType::_ALLGATHER_BASE, outputs[i], inputs[i]));
    return run(OpType::COALESCED, std::move(calls), opts.asyncOp);
  }

  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) override {
    Tensor output = only(outputs);
    return add({OpType::REDUCE_SCATTER, "reduce_scatter", inputs[0], {output},
                [this, output, ins = inputs[0], op = opts.reduceOp] {
                  values_.reduce_scatter(flattened(ins), output, op);
                },
                word_of(opts.reduceOp)},
               opts.asyncOp);
  }

  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    return add(scatter_from("_reduce_scatter_base", output, input, opts.reduceOp), opts.asyncOp);
  }

  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override {
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++)
      calls.push_back(scatter_from("reduce_scatter_tensor_coalesced", outputs[i], inputs[i], opts.reduceOp));
    return run(OpType::COALESCED, std::move(calls), opts.asyncOp);
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    Tensor input = only(inputs);
    int root = int(opts.rootRank);
    Tensors outs = rank_ == root ? outputs.at(0) : Tensors();
    return add({OpType::GATHER, "gather", {input}, outs,
                [this, input, outs, root] { values_.gather(input, outs, root); }},
               opts.asyncOp);
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override {
    Tensor output = only(outputs);
    int root = int(opts.rootRank);
    Tensors ins = rank_ == root ? inputs.at(0) : Tensors();
    return add({OpType::SCATTER, "scatter", ins, {output},
                [this, output, ins, root] { values_.scatter(output, ins, root); }},
               opts.asyncOp);
  }

  WorkPtr alltoall_base(
      Tensor& output, Tensor& input, std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& opts) override {
    bool even = output_sizes.empty() && input_sizes.empty();
    return add({OpType::ALLTOALL_BASE, even ? "all_to_all" : "all_to_allv", {input}, {output},
                [this, output, input, output_sizes, input_sizes] {
                  values_.all_to_all(values_.split(input, input_sizes), values_.split(output, output_sizes));
                }},
               opts.asyncOp);
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    return add({OpType::ALLTOALL, "all_to_all", inputs, outputs,
                [this, outputs, inputs] { values_.all_to_all(flattened(inputs), flattened(outputs)); }},
               opts.asyncOp);
  }

  WorkPtr send(Tensors& tensors, int to, int) override {
    return add({OpType::SEND, "send", {only(tensors)}, {}, {}, "", to}, true);
  }

  WorkPtr recv(Tensors& tensors, int from, int) override {
    return add({OpType::RECV, "recv", {}, {only(tensors)}, {}, "", from}, true);
  }

  // As in torch: an all-reduce of one element, for which the host waits.
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    int device = opts.device ? device_number(*opts.device)
        : !opts.device_ids.empty() ? int(opts.device_ids[0])
        : bound_device_id_         ? device_number(*bound_device_id_)
                                   : current_device();
    Tensor one = at::zeros({1}, at::TensorOptions(c10::Device(c10::kCUDA, c10::DeviceIndex(device))).dtype(at::kFloat));
    return run(OpType::BARRIER, {{OpType::BARRIER, "barrier", {one}, {one},
                                  [this, one] { values_.all_reduce(one, ReduceOp::SUM); }, "sum"}}, opts.asyncOp, true);
  }

 private:
  // Calls that several functions of torch make.

  Call gather_into(const char* name, OpType type, const Tensor& output, const Tensor& input) {
    TORCH_CHECK(input.numel() * size_ == output.numel(),
                "output tensor size must be equal to world_size times input tensor size");
    return {type, name, {input}, {output},
            [this, output, input] { values_.all_gather(input, flat(output).chunk(size_)); }};
  }

  Call scatter_from(const char* name, const Tensor& output, const Tensor& input, const ReduceOp& op) {
    TORCH_CHECK(output.numel() * size_ == input.numel(),
                "input tensor must be the same size as output size times world size");
    return {OpType::_REDUCE_SCATTER_BASE, name, {input}, {output},
            [this, output, input, op] { values_.reduce_scatter(flat(input).chunk(size_), output, op); }, word_of(op)};
  }

  static Tensor only(const Tensors& tensors) {
    TORCH_CHECK(tensors.size() == 1, "Expecting one tensor only but got multiple");
    TORCH_CHECK(tensors[0].is_cuda(), "No backend type associated with device type ", tensors[0].device().type());
    return tensors[0];
  }

  WorkPtr add(Call call, bool async) {
    if (!coalescing_) return run(call.type, {std::move(call)}, async);
    coalesced_async_ = coalesced_async_ || async;
    coalesced_.push_back(std::move(call));
    return nullptr;
  }

  Values values_;
  int splits_ = 0;
  bool coalescing_ = false, coalesced_async_ = false;
  std::vector<Call> coalesced_;
};

} // namespace

void define_nccl(py::module_ c10d) {
  using Group = py::class_<VirtualNccl, c10::intrusive_ptr<VirtualNccl>, c10d::Backend>;
  using GroupOptions = py::class_<NcclOptions, c10::intrusive_ptr<NcclOptions>, c10d::Backend::Options>;
  Group group(c10d, "ProcessGroupNCCL");
  auto copied = [](const NcclOptions& options) { return c10::make_intrusive<NcclOptions>(options); };
  GroupOptions(group, "Options", py::dynamic_attr())
      .def(py::init<bool>(), py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &NcclOptions::is_high_priority_stream)
      .def("__copy__", copied)
      .def("__deepcopy__", [copied](const NcclOptions& options, const py::dict&) { return copied(options); });
  // Functions of NCCL's communicators other than collectives have no effect here.
  group
      .def(py::init<const c10::intrusive_ptr<c10d::Store>&, int, int, c10::intrusive_ptr<NcclOptions>>(),
           py::call_guard<py::gil_scoped_release>(), py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("options"))
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds) {
             return c10::make_intrusive<VirtualNccl>(store, rank, size, c10::make_intrusive<NcclOptions>());
           }),
           py::call_guard<py::gil_scoped_release>(), py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("timeout") = kBackendDefaultTimeout)
      .def("_set_default_timeout", &VirtualNccl::setTimeout)
      .def("_add_ephemeral_timeout", [](VirtualNccl&, std::chrono::milliseconds) {})
      .def("_group_start", [](VirtualNccl&) {})
      .def("_group_end", [](VirtualNccl&) {})
      .def("_is_initialized", [](VirtualNccl&) { return true; })
      .def("perform_nocolor_split", [](VirtualNccl&, const py::object&) {})
      .def("comm_split_count", &VirtualNccl::splits)
      .def_property_readonly("options", &VirtualNccl::options)
      .def_property_readonly("uid", &VirtualNccl::getID);
}

} // namespace unstall
