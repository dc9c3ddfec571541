// As torch is built: else its header asserts on what only a debug build of torch keeps.
#ifndef NDEBUG
#define NDEBUG
#endif
#include "operators.h"

#include "host_uses.h"
#include "keeper.h"
#include "locks.h"
#include "log.h"
#include "stacks.h"

#include <ATen/record_function.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace unstall {
namespace {

// torch numbers threads in its own way; a backward operator says which of those ran its forward.
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

// What a thread is in, as its stack of operators.
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

} // namespace

void watch_operators() {
  watching();
}

void watch_inputs() {
  static std::atomic<bool> watched{false};
  if (watched.load(std::memory_order_relaxed) || watched.exchange(true)) return;
  at::removeCallback(watching());
  watch(true);
}

std::string operator_here() {
  std::string node;
  for (const Open& one : open) {
    if (one.scope == at::RecordScope::BACKWARD_FUNCTION) node = name_of(one.name);
    else if (one.scope == at::RecordScope::FUNCTION) return name_of(one.name) + (node.empty() ? "" : " in " + node);
  }
  return node;
}

} // namespace unstall
