#include "operators.h"

#include "kernels.h"
#include "simulator.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <atomic>
#include <mutex>
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

struct Touches {
  bool any = false;
  c10::SmallVector<bool, 8> written; // of each argument
};

Touches touches_of(const c10::OperatorName& name) {
  Touches touches;
  auto op = c10::Dispatcher::singleton().findOp(name);
  if (!op || !op->hasSchema() || no_values.count(name.name)) return touches;
  if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && name.name != "aten::copy_") return touches;
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
};
thread_local std::vector<Open> open;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto& thread = this_thread();
  if (thread.computing || !logging()) return nullptr;
  know_this_thread(thread);
  thread.stacks.push_back(python_stack());
  bool mark = function.scope() == at::RecordScope::USER_SCOPE;
  int32_t name = number_of(function);
  open.push_back({function.scope(), name});
  HostUses uses;
  if (copies_may_run.load(std::memory_order_relaxed)) uses = host_uses(function);
  write({.code = mark ? Code::MARK_BEGIN : Code::OP_BEGIN, .a = function.seqNr(),
         .b = forward_thread(function.forwardThreadId()), .id = name, .uses = uses.data(), .use_count = uses.size()});
  return nullptr;
}

void end(const at::RecordFunction& function, at::ObserverContext*) {
  auto& thread = this_thread();
  if (thread.computing || !logging()) return;
  bool mark = function.scope() == at::RecordScope::USER_SCOPE;
  write({.code = mark ? Code::MARK_END : Code::OP_END});
  if (!thread.stacks.empty()) thread.stacks.pop_back();
  if (!open.empty()) open.pop_back();
  if (thread.stacks.empty()) drain_when_long();
}

at::CallbackHandle watch(bool inputs) {
  return at::addGlobalCallback(at::RecordFunctionCallback(begin, end).needsInputs(inputs).scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
}

at::CallbackHandle watching() {
  static const auto handle = watch(false);
  return handle;
}

// Has operators come with their inputs, which takes time at each.
void watch_inputs() {
  static std::atomic<bool> watched{false};
  if (watched.load(std::memory_order_relaxed) || watched.exchange(true)) return;
  at::removeCallback(watching());
  watch(true);
}

} // namespace

void watch_operators() {
  watching();
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
  watch_inputs();
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
