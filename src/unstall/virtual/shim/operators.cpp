#include "_frames.h" // first: it includes Python.h

#include "operators.h"

#include "kernels.h"
#include "launches.h"
#include "simulator.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace unstall {
namespace {

struct Copies {
  Lock lock;
  std::set<std::pair<int, int64_t>> streams; // with a copy that the host has not waited for
  bool captured = false; // in a graph: each launch copies
};

Copies& copies() {
  static auto* all = new Copies;
  return *all;
}

// These have CPU kernels, but touch no values.
const std::unordered_set<std::string> no_values = {
    "aten::set_", "aten::resize_", "aten::resize_as_", "aten::is_set_to", "aten::record_stream", "aten::is_pinned"};
// These compute, and have no CPU kernel of their own.
const std::unordered_set<std::string> composite = {"aten::copy_", "aten::convolution", "aten::convolution_backward"};

struct Touches {
  bool any = false;
  c10::SmallVector<bool, 8> written; // of each argument
};

Touches touches_of(const c10::OperatorName& name) {
  Touches touches;
  auto op = c10::Dispatcher::singleton().findOp(name);
  if (!op || !op->hasSchema() || no_values.count(name.name)) return touches;
  if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && !composite.count(name.name)) return touches;
  const auto& schema = op->schema();
  for (const auto& result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return touches;
  for (const auto& argument : schema.arguments())
    touches.written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
  touches.any = true;
  return touches;
}

const Touches& touches_of(const at::RecordFunction& function) {
  static const Touches nothing;
  static thread_local std::unordered_map<c10::OperatorName, Touches> known;
  auto name = function.operator_name();
  if (!name) return nothing;
  auto found = known.find(*name);
  if (found == known.end()) found = known.emplace(*name, touches_of(*name)).first;
  return found->second;
}

bool in_pinned_memory(const Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == c10::kStrided && tensor.has_storage() &&
      is_pinned(tensor.storage().data());
}

using HostUses = c10::SmallVector<Use, 4>;

// The pinned memory that an operator which begins is about to use: nothing if it only makes views, or is made of other
// operators.
HostUses host_uses(const at::RecordFunction& function) {
  HostUses uses;
  const Touches* touches = nullptr;
  size_t number = 0;
  auto see = [&](const Tensor& tensor) {
    if (!in_pinned_memory(tensor)) return;
    if (!touches) touches = &touches_of(function);
    if (touches->any && number < touches->written.size()) uses.push_back(use_of(tensor, touches->written[number]));
  };
  for (const c10::IValue& value : function.inputs()) {
    if (value.isTensor()) {
      see(value.toTensor());
    } else if (value.isTensorList()) {
      for (const auto& one : value.toListRef()) see(one.toTensor());
    }
    number++;
  }
  return uses;
}

// Calls `see` with each tensor of the values, also of those in lists.
template <class Values, class See>
void each_tensor(const Values& values, See&& see) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      see(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const auto& one : value.toListRef())
        if (one.isTensor()) see(one.toTensor());
    }
  }
}

// Whether an operator has nothing to do with a device, by its tensors and by the device that it is asked for.
bool on_host(const at::RecordFunction& function) {
  bool host = true;
  each_tensor(function.inputs(), [&](const Tensor& tensor) { host = host && (!tensor.defined() || tensor.is_cpu()); });
  for (const c10::IValue& value : function.inputs()) host = host && !(value.isDevice() && !value.toDevice().is_cpu());
  return host;
}

// Whether it has plain values in the CPU's memory: not one that stands for others, such as vmap's.
bool is_plain(const Tensor& tensor) {
  return !tensor.defined() ||
      (tensor.is_cpu() && tensor.layout() == c10::kStrided && !tensor.is_nested() && tensor.has_storage() &&
       tensor.storage().device().is_cpu());
}

// The signature of an operator that computes on the CPU, without its outputs. Its name says that no device computes it.
std::optional<Signature> work_of(const at::RecordFunction& function) {
  if (!touches_of(function).any) return {};
  bool plain = true;
  each_tensor(function.inputs(), [&](const Tensor& tensor) { plain = plain && is_plain(tensor); });
  if (!plain) return {};
  static thread_local std::unordered_map<c10::OperatorName, OpName> known;
  auto name = *function.operator_name();
  auto found = known.find(name);
  if (found == known.end()) found = known.emplace(name, OpName("cpu " + name.name, name.overload_name)).first;
  Signature signature(found->second);
  for (const c10::IValue& value : function.inputs()) signature.add(value);
  return signature;
}

std::atomic<int> threads_set{0};

// torch has its own numbers for threads; a backward operator has that of its forward thread.
struct Threads {
  Lock lock;
  std::unordered_map<uint64_t, int32_t> numbers;
};

Threads& threads() {
  static auto* threads = new Threads;
  return *threads;
}

int64_t forward_thread(uint64_t torch_number) {
  if (torch_number == 0) return -1;
  auto& all = threads();
  std::lock_guard guard(all.lock);
  auto found = all.numbers.find(torch_number);
  return found == all.numbers.end() ? -1 : found->second;
}

void know_this_thread(const ThreadState& state) {
  static thread_local bool known = false;
  if (known) return;
  known = true;
  auto& all = threads();
  std::lock_guard guard(all.lock);
  all.numbers.emplace(at::RecordFunction::currentThreadId(), state.number);
}

// The number of a thread that runs Python. torch copies it into the threads that run what that thread asks for: those of
// autograd, until the backward pass is over.
struct Caller : c10::DebugInfoBase {
  explicit Caller(int32_t thread) : number(thread) {}
  int32_t number;
};

const Caller* caller_here() {
  return static_cast<const Caller*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO_2));
}

void be_caller(const ThreadState& state) {
  // Below all else: torch's own are taken away from the top.
  if (!caller_here() && !c10::ThreadLocalDebugInfo::current())
    c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::TEST_INFO_2, std::make_shared<Caller>(state.number));
}

int32_t number_of(const at::RecordFunction& function) {
  std::string_view name = function.name();
  static thread_local std::unordered_map<std::string, int32_t> numbers;
  static thread_local std::string text;
  text.assign(name);
  auto found = numbers.find(text);
  if (found == numbers.end()) found = numbers.emplace(text, name_number(name)).first;
  return found->second;
}

// The operators that a thread is in, outermost first.
struct Open {
  at::RecordScope scope;
  int32_t name;
  Within before; // what the thread was in
  std::optional<Signature> work = {};
};
thread_local std::vector<Open> open;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto& thread = this_thread();
  if (thread.computing || !logging()) return nullptr;
  OwnWork own;
  know_this_thread(thread);
  bool mark = function.scope() == at::RecordScope::USER_SCOPE;
  int32_t stack = mark ? CHANGES : python_stack();
  if (!mark && stack != NO_PYTHON) be_caller(thread);
  const Caller* caller = stack == NO_PYTHON ? caller_here() : nullptr;
  thread.stacks.push_back(stack);
  int32_t name = number_of(function);
  bool host = !mark && on_host(function);
  bool part = std::any_of(open.begin(), open.end(), [](const Open& one) { return one.work.has_value(); });
  open.push_back({function.scope(), name, thread.within});
  if (host && !part && function.scope() == at::RecordScope::FUNCTION) open.back().work = work_of(function);
  HostUses uses;
  if (copies_may_run.load(std::memory_order_relaxed)) uses = host_uses(function);
  write({.code = mark ? Code::MARK_BEGIN : Code::OP_BEGIN, .a = function.seqNr(),
         .b = forward_thread(function.forwardThreadId()), .id = name, .flags = host ? ON_HOST : uint8_t(0),
         .content = caller ? caller->number + 1 : 0, .uses = uses.data(), .use_count = uses.size()});
  if (!mark) thread.within = host ? HOST_OPERATOR : DEVICE_OPERATOR;
  return nullptr;
}

void log_work(Signature& signature, const at::RecordFunction& function) {
  bool plain = true;
  signature.outputs();
  each_tensor(function.outputs(), [&](const Tensor& tensor) { plain = plain && is_plain(tensor); });
  if (!plain) return;
  each_tensor(function.outputs(), [&](const Tensor& tensor) { signature.add(tensor); });
  write({.code = Code::WORK, .a = threads_set.load(std::memory_order_relaxed), .id = signature.number()});
}

void end(const at::RecordFunction& function, at::ObserverContext*) {
  auto& thread = this_thread();
  if (thread.computing || !logging()) return;
  {
    OwnWork own;
    bool mark = function.scope() == at::RecordScope::USER_SCOPE;
    if (!open.empty() && open.back().work) log_work(*open.back().work, function);
    write({.code = mark ? Code::MARK_END : Code::OP_END});
    if (!thread.stacks.empty()) thread.stacks.pop_back();
    if (!open.empty()) {
      thread.within = open.back().before;
      open.pop_back();
    }
  }
  if (thread.stacks.empty()) drain_when_long();
}

} // namespace

void watch_operators() {
  static const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(begin, end).needsInputs(true).needsOutputs(true).scopes(
          {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
  (void)handle;
  const char* set = std::getenv("OMP_NUM_THREADS");
  if (set) set_threads(std::atoi(set));
}

void set_threads(int count) {
  threads_set = count;
}

std::string operator_here() {
  std::string node;
  for (const Open& one : open) {
    if (one.scope == at::RecordScope::BACKWARD_FUNCTION) node = name_of(one.name);
    else if (one.scope == at::RecordScope::FUNCTION) return name_of(one.name) + (node.empty() ? "" : " in " + node);
  }
  return node;
}

std::vector<std::string> operators_here() {
  std::vector<std::string> names;
  for (const Open& one : open)
    if (one.scope != at::RecordScope::USER_SCOPE) names.push_back(name_of(one.name));
  return names;
}

std::atomic<bool> copies_may_run{false};

void copy_started(int device, int64_t stream) {
  bool captured = capturing_here(device);
  std::lock_guard guard(copies().lock);
  copies().streams.emplace(device, stream);
  copies().captured = copies().captured || captured;
  copies_may_run = true;
}

void stream_finished(int device, int64_t stream) {
  std::lock_guard guard(copies().lock);
  copies().streams.erase({device, stream});
  copies_may_run = copies().captured || !copies().streams.empty();
}

void device_finished(int device) {
  std::lock_guard guard(copies().lock);
  std::erase_if(copies().streams, [&](const auto& place) { return place.first == device; });
  copies_may_run = copies().captured || !copies().streams.empty();
}

void log_host_read(const Tensor& tensor, const char* name) {
  if (!copies_may_run.load(std::memory_order_relaxed) || !in_pinned_memory(tensor)) return;
  Use use = use_of(tensor, false);
  write({.code = Code::OP_BEGIN, .a = -1, .b = -1, .id = name_number(name), .uses = &use, .use_count = 1});
  write({.code = Code::OP_END});
}

} // namespace unstall
