// torch's process group over NCCL, for ranks that each have a virtual GPU. It follows ProcessGroupNCCL.cpp: which stream
// a collective runs on, what it waits for, and what waits for it.
//
// The values move at once, over gloo (peers.h), when the collective is launched: the host really waits for the other
// ranks then, and no virtual time passes. The times are the simulator's. A collective's kernel begins when this rank is
// ready for it, and ends when the last rank was ready and the bytes are there: the ranks tell each other when they are
// ready, as virtual times. So the kernel's time is waiting and transfer, as on a real GPU.
#include "gil.h" // first: it includes Python.h

#include "nccl.h"

#include "collective_values.h"
#include "kernels.h"
#include "peers.h"
#include "simulator.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>

namespace py = pybind11;

namespace unstall {
namespace {

using c10d::OpType;
using c10d::ReduceOp;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

c10::Stream stream_of(int device, int64_t stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, c10::DeviceIndex(device)), stream);
}

c10::Stream current_stream_of(int device) {
  return stream_of(device, current_stream(device));
}

class NcclWork final : public c10d::Work {
 public:
  NcclWork(int rank, OpType type, int device, Tensors outputs, Tensors kept, bool holds_host, uint64_t number)
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

// One call of the program's. `move` moves the values of a collective, on tensors of the CPU.
struct Call {
  OpType type;
  const char* name; // torch's, as in Kineto's traces
  Tensors inputs, outputs;
  std::function<void()> move = {};
  const char* reduction = "";
  int peer = -1; // of a message
};

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += int64_t(tensor.nbytes());
  return bytes;
}

class VirtualNccl final : public c10d::Backend {
 public:
  VirtualNccl(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<NcclOptions> options)
      : Backend(rank, size), options_(std::move(options)), peers_(store, rank, size), values_(peers_, rank, size) {
    init();
    // The ranks meet: their hosts wait for the latest.
    join(together({host_ns()})[0]);
  }

  const std::string getBackendName() const override { return "nccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return collectives_; }
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
  void waitForPendingWorks() override {}
  void enableCollectivesTiming() override {}

  // The ranks of this group that are in a new one; they meet in it.
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
  c10::intrusive_ptr<NcclOptions> options() const { return options_; }

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

  // As torch does it: an all-reduce of one element, which the host waits for.
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
  // Calls that are made in several ways.

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

  // What happens when.

  // As ranks of the job.
  std::vector<uint64_t> members() const {
    auto members = options_->global_ranks_in_group; // none: the whole job
    for (int rank = 0; members.size() < size_t(size_); rank++) members.push_back(uint64_t(rank));
    return members;
  }

  WorkPtr add(Call call, bool async) {
    if (!coalescing_) return run(call.type, {std::move(call)}, async);
    coalesced_async_ = coalesced_async_ || async;
    coalesced_.push_back(std::move(call));
    return nullptr;
  }

  // Collectives have one stream of the group's, single messages one for each pair of ranks.
  int64_t own_stream(int device, int peer) {
    auto [found, is_new] = streams_.try_emplace({device, peer}, 0);
    if (is_new) found->second = new_stream(device, options_->is_high_priority_stream ? -1 : 0);
    return found->second;
  }

  std::vector<int64_t> together(const std::vector<int64_t>& values) {
    return computed([&] { return peers_.largest(values); });
  }

  WorkPtr run(OpType type, std::vector<Call> calls, bool async, bool holds_host = false) {
    Tensors inputs, outputs, all;
    for (const auto& call : calls) {
      inputs.insert(inputs.end(), call.inputs.begin(), call.inputs.end());
      outputs.insert(outputs.end(), call.outputs.begin(), call.outputs.end());
    }
    all = inputs;
    all.insert(all.end(), outputs.begin(), outputs.end());
    TORCH_CHECK(!all.empty(), "a collective without tensors");
    int device = device_number(all[0].device());
    TORCH_CHECK_NOT_IMPLEMENTED(
        !capturing_here(device), "the virtual GPU captures no collectives of NCCL in CUDA graphs");
    OnDevice on(device);
    std::vector<c10::IValue> seen(inputs.begin(), inputs.end());
    at::RecordFunction operation(at::RecordScope::FUNCTION);
    if (operation.isActive())
      operation.before("record_param_comms", c10::ArrayRef<const c10::IValue>(seen.data(), seen.size()));
    bool is_message = calls.size() == 1 && calls[0].peer >= 0;
    int64_t stream = async ? own_stream(device, is_message ? calls[0].peer : -1) : current_stream(device);
    if (async) {
      c10::Event ready(c10::kCUDA);
      ready.record(current_stream_of(device));
      ready.block(stream_of(device, stream));
    }
    uint64_t number = is_message ? ++messages_ : ++collectives_;
    write({.code = Code::COLLECTIVE_CALL, .device = device, .stream = stream});
    int64_t ready_ns = can_start_ns(device, stream);
    auto [latest_ns, latest_sender_ns] = computed([&] { return meet(calls, ready_ns); });
    log(device, stream, calls, number, ready_ns, latest_ns, latest_sender_ns);
    auto work = c10::make_intrusive<NcclWork>(rank_, type, device, outputs, all, holds_host, number);
    work->ends_on(stream_of(device, stream));
    return async || holds_host ? work : nullptr;
  }

  // Moves the values. Returns when the last rank is ready for the collectives, and when the last one is that sends this
  // rank a message.
  std::tuple<int64_t, int64_t> meet(const std::vector<Call>& calls, int64_t ready_ns) {
    int64_t latest_ns = ready_ns, latest_sender_ns = ready_ns;
    bool are_known = true, any = false;
    for (const auto& call : calls) {
      any = any || call.peer < 0;
      for (const auto& tensor : call.inputs) are_known = are_known && known(tensor);
    }
    if (any) {
      auto largest = peers_.largest({ready_ns, !are_known});
      latest_ns = largest[0];
      are_known = !largest[1];
    }
    for (const auto& call : calls)
      if (call.type == OpType::SEND) send_values(flat_or_none(call.inputs[0]), call.peer, ready_ns);
    for (const auto& call : calls) {
      if (call.type == OpType::RECV) {
        Tensor head = at::empty({2}, at::kLong);
        peers_.receive(head, call.peer);
        latest_sender_ns = std::max(latest_sender_ns, head[0].item<int64_t>());
        bool come = head[1].item<int64_t>();
        if (come) peers_.receive(flat(call.outputs[0]), call.peer);
        set_known(call.outputs[0], come);
      } else if (call.move) {
        if (are_known) call.move();
        for (const auto& tensor : call.outputs) set_known(tensor, are_known);
      }
    }
    return {latest_ns, latest_sender_ns};
  }

  static Tensor flat_or_none(const Tensor& tensor) { return known(tensor) ? flat(tensor) : Tensor(); }

  void send_values(const Tensor& values, int to, int64_t ready_ns) {
    peers_.send(at::tensor({ready_ns, int64_t(values.defined())}, at::kLong), to);
    if (values.defined()) peers_.send(values.clone(), to);
  }

  void log(
      int device, int64_t stream, const std::vector<Call>& calls, uint64_t number, int64_t ready_ns, int64_t latest_ns,
      int64_t latest_sender_ns) {
    int64_t collective = ask_simulator("collective", [&] {
      py::list parts;
      for (const auto& call : calls) {
        const Tensor& any = call.inputs.empty() ? call.outputs[0] : call.inputs[0];
        parts.append(py::make_tuple(
            call.name, dtype_name(any.scalar_type()), call.reduction, bytes_of(call.inputs), bytes_of(call.outputs),
            call.peer));
      }
      auto group = py::make_tuple(options_->group_name, pg_desc_, rank_, py::tuple(py::cast(members())));
      auto meeting = py::make_tuple(ready_ns, latest_ns, latest_sender_ns);
      return py::make_tuple(parts, group, number, meeting).release().ptr();
    });
    std::vector<Use> uses;
    auto use = [&](const Tensors& tensors, bool written) {
      for (const auto& tensor : tensors) {
        Use one = use_of(tensor, written);
        if (one.allocation) uses.push_back(one);
      }
    };
    for (const auto& call : calls) {
      use(call.inputs, false);
      use(call.outputs, true);
    }
    write({.code = Code::COLLECTIVE, .device = device, .stream = stream, .a = collective, .uses = uses.data(),
           .use_count = uses.size()});
  }

  static int64_t host_ns() {
    return ask_simulator("here_ns", [] { return PyTuple_New(0); });
  }

  void join(int64_t at_ns) {
    ask_simulator("join_group", [&] { return Py_BuildValue("(Lii)", static_cast<long long>(at_ns), rank_, size_); });
  }

  static int64_t can_start_ns(int device, int64_t stream) {
    return ask_simulator("can_start_ns", [&] { return Py_BuildValue("(iL)", device, static_cast<long long>(stream)); });
  }

  c10::intrusive_ptr<NcclOptions> options_;
  Peers peers_;
  Values values_;
  std::map<std::pair<int, int>, int64_t> streams_;
  std::atomic<uint64_t> collectives_{0}, messages_{0};
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
  // What NCCL's communicators do beside collectives has no effect here.
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
