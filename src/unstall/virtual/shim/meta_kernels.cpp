#include "meta_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>

namespace unstall {
namespace {

using Table = std::unordered_map<c10::OperatorName, c10::SafeKernelFunction>;

Table& table() {
  static auto* kept = new Table;
  return *kept;
}

} // namespace

void keep_meta_kernels() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (op && op->hasSchema() && op->hasKernelForDispatchKey(c10::DispatchKey::Meta))
      table().emplace(name, op->getComputedKernelForDispatchKey(c10::DispatchKey::Meta));
  }
}

const c10::SafeKernelFunction* meta_kernel(const c10::OperatorName& name) {
  auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

} // namespace unstall
