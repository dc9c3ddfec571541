// Launches the calls of a process group over NCCL.
//
// The values move at once, over gloo (peers.h), when the collective is launched: the host really waits for the other
// ranks then, and no virtual time passes. The times are the simulator's. A collective's kernel begins when this rank is
// ready for it, and ends when the last rank was ready and the bytes are there: the ranks tell each other when they are
// ready, as virtual times. So the kernel's time is waiting and transfer, as on a real GPU.
#include "gil.h" // first: it includes Python.h

#include "nccl_launch.h"

#include "collective_values.h"
#include "kernels.h"
#include "simulator.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

namespace py = pybind11;

namespace unstall {
namespace {

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += int64_t(tensor.nbytes());
  return bytes;
}

Tensor flat_or_none(const Tensor& tensor) { return known(tensor) ? flat(tensor) : Tensor(); }

int64_t host_ns() {
  return ask_simulator("here_ns", [] { return PyTuple_New(0); });
}

int64_t can_start_ns(int device, int64_t stream) {
  return ask_simulator("can_start_ns", [&] { return Py_BuildValue("(iL)", device, static_cast<long long>(stream)); });
}

} // namespace

LaunchingNccl::LaunchingNccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<NcclOptions> options)
    : Backend(rank, size), options_(std::move(options)), peers_(store, rank, size) {
  init();
  // The ranks meet: their hosts wait for the latest.
  int64_t latest_ns = computed([&] { return peers_.largest({host_ns()}); })[0];
  ask_simulator(
      "join_group", [&] { return Py_BuildValue("(Lii)", static_cast<long long>(latest_ns), rank_, size_); });
}

std::vector<uint64_t> LaunchingNccl::members() const {
  auto members = options_->global_ranks_in_group; // none: the whole job
  for (int rank = 0; members.size() < size_t(size_); rank++) members.push_back(uint64_t(rank));
  return members;
}

// Collectives have one stream of the group's, single messages one for each pair of ranks.
int64_t LaunchingNccl::own_stream(int device, int peer) {
  auto [found, is_new] = streams_.try_emplace({device, peer}, 0);
  if (is_new) found->second = new_stream(device, options_->is_high_priority_stream ? -1 : 0);
  return found->second;
}

WorkPtr LaunchingNccl::run(c10d::OpType type, std::vector<Call> calls, bool async, bool holds_host) {
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
std::tuple<int64_t, int64_t> LaunchingNccl::meet(const std::vector<Call>& calls, int64_t ready_ns) {
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
    if (call.type == c10d::OpType::SEND) send_values(flat_or_none(call.inputs[0]), call.peer, ready_ns);
  for (const auto& call : calls) {
    if (call.type == c10d::OpType::RECV) {
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

void LaunchingNccl::send_values(const Tensor& values, int to, int64_t ready_ns) {
  peers_.send(at::tensor({ready_ns, int64_t(values.defined())}, at::kLong), to);
  if (values.defined()) peers_.send(values.clone(), to);
}

void LaunchingNccl::log(
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

} // namespace unstall
