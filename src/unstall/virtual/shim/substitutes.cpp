#include "substitutes.h"

#include "kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>

namespace unstall {
namespace {

using Table = std::unordered_map<c10::OperatorName, Substitute>;

Table& table() {
  static auto* all = new Table;
  return *all;
}

c10::OperatorName name_in_aten(const std::string& name) {
  auto dot = name.find('.');
  return {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)};
}

// Only CUDA has kernels for these, each one piece of work; on the CPU they are made of other operators.
bool has_kernel_on_cuda_alone(const std::string& name) {
  for (const char* prefix : {"aten::_foreach_", "aten::_chunk_cat", "aten::_grouped_mm"})
    if (name.rfind(prefix, 0) == 0) return true;
  return false;
}

} // namespace

const Substitute* substitute_for(const c10::OperatorName& name) {
  auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

void Substitutes::insert(const std::string& name, Substitute substitute) {
  table().insert_or_assign(name_in_aten(name), substitute);
}

SubstitutesOfFile::SubstitutesOfFile(void (*add)(Substitutes&)) {
  Substitutes list;
  add(list);
}

at::Tensor in_format(const at::Tensor& tensor, at::MemoryFormat format) {
  return tensor.contiguous(format);
}

VIRTUAL_KERNELS(kernels) {
  auto redirected = [&](const c10::OperatorName& name) {
    std::string short_name = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    if (!kernels.has("aten::" + short_name))
      kernels.impl(short_name, torch::CppFunction::makeFromBoxedFunction<&redirect>());
  };
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& [name, substitute] : table())
    if (dispatcher.findSchema(name)) redirected(name); // not every torch has each of them
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (!has_kernel_on_cuda_alone(name.name)) continue;
    // torch never calls their *.out overloads, and CUDA has no kernels for them.
    if (dispatcher.findSchema(name) && name.overload_name.find("out") == std::string::npos) redirected(name);
  }
}

} // namespace unstall
