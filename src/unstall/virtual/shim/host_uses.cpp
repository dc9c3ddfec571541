// As torch is built: else its header asserts on what only a debug build of torch keeps.
#ifndef NDEBUG
#define NDEBUG
#endif
#include "host_uses.h"

#include "graphs.h"
#include "locks.h"
#include "operators.h"
#include "redirect.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace unstall {
namespace {

struct Copies {
  Lock lock;
  std::set<std::pair<int, int64_t>> streams; // with copies that the host has not waited for
  bool captured = false; // in a graph, whose every launch copies
};

Copies& copies() {
  static auto* all = new Copies;
  return *all;
}

// These have kernels of the CPU, too, but touch no values.
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

} // namespace

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

void log_host_read(const Tensor& tensor, const char* name) {
  if (!copies_may_run.load(std::memory_order_relaxed) || !in_pinned_memory(tensor)) return;
  Use use = use_of(tensor, false);
  write({.code = Code::OP_BEGIN, .a = -1, .b = -1, .id = name_number(name), .uses = &use, .use_count = 1});
  write({.code = Code::OP_END});
}

} // namespace unstall
