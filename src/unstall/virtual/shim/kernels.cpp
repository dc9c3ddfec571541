// The kernels for the key CUDA: for nearly all operators the one that redirects to the CPU's kernel.
#include "call.h"
#include "kernels.h"
#include "meta_kernels.h"
#include "simulator.h"
#include "sparse.h"

#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/native_channel_shuffle_native.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>

#include <ATen/Parallel.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace unstall {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

// One for each operator: what is the same for all calls is computed once.
struct Kernel final : c10::OperatorKernel {
  explicit Kernel(const OperatorHandle& op) : about(op) {}
  void operator()(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    call(about, op, stack);
    drain_when_long();
  }
  About about;
};

// For operators that were registered after this was loaded, such as torchvision's.
void fallback(const OperatorHandle& op, Stack* stack) {
  redirect(op, stack);
}

void refuse_quantized(const OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "the virtual GPU computes dense and sparse tensors only: it cannot run ", op.operator_name(),
      " on quantized tensors");
}

// torch's code for jagged tensors takes NotImplementedError for "try another way", and then says something else.
void refuse_nested(const OperatorHandle& op, Stack*) {
  TORCH_CHECK(
      false, "the virtual GPU cannot run ", op.operator_name(),
      " on nested tensors of the layout torch.strided, which scaled_dot_product_attention makes of jagged ones too: "
      "call it for each of nested.unbind(), or pad with nested.to_padded_tensor() and pass a mask");
}

// Only the CPU has kernels for these. As on a real GPU, they are made of other operators, or refused.
void refuse_as_cuda(const OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "Could not run '", op.operator_name(),
      "' with arguments from the 'CUDA' backend. torch has no kernel of CUDA for this operator, so a GPU cannot run it "
      "either.");
}

void add_of_cpu_alone(Kernels& kernels) {
  kernels.impl("pixel_shuffle", TORCH_FN(at::native::math_pixel_shuffle));
  kernels.impl("pixel_unshuffle", TORCH_FN(at::native::math_pixel_unshuffle));
  kernels.impl("native_channel_shuffle", TORCH_FN(at::native::math_channel_shuffle));
  kernels.impl("channel_shuffle", TORCH_FN(at::native::math_channel_shuffle)); // CUDA's is that one, by another name
  for (const char* name :
       {"histogram.bins_tensor", "histogram.bins_tensor_out", "histogram.bin_ct", "histogram.bin_ct_out",
        "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors"})
    kernels.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_as_cuda>());
}

std::vector<void (*)(Kernels&)>& files() {
  static auto* files = new std::vector<void (*)(Kernels&)>;
  return *files;
}

} // namespace

torch::Library& library(const char* ns, c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, ns, key, __FILE__, __LINE__); // never freed
}

const About& about_of(const OperatorHandle& op) {
  static Lock lock;
  static auto* known = new std::unordered_map<c10::OperatorName, About>; // its elements stay where they are
  {
    std::lock_guard guard(lock);
    auto found = known->find(op.operator_name());
    if (found != known->end()) return found->second;
  }
  About made(op);
  std::lock_guard guard(lock);
  return known->emplace(op.operator_name(), std::move(made)).first->second;
}

void compute_as_first_thread() {
  static const auto first = std::this_thread::get_id();
  static std::atomic<int> threads{at::get_num_threads()};
  if (std::this_thread::get_id() == first) threads = at::get_num_threads();
  else if (int wanted = threads; at::get_num_threads() != wanted) at::set_num_threads(wanted);
}

void redirect(const OperatorHandle& op, Stack* stack) {
  call(about_of(op), op, stack);
  drain_when_long();
}

KernelsOfFile::KernelsOfFile(void (*add)(Kernels&)) {
  files().push_back(add);
}

void register_kernels() {
  keep_meta_kernels();
  auto& aten = library("aten", c10::DispatchKey::CUDA);
  Kernels kernels(aten);
  add_of_cpu_alone(kernels);
  for (auto* add : files()) add(kernels);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || name.name.rfind("aten::", 0) != 0) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (kernels.has(full)) continue;
    aten.impl(full.c_str() + 6, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(*op)));
  }
  library("_", c10::DispatchKey::CUDA).fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  register_sparse_kernels();
  register_traced_convolutions();
  library("_", c10::DispatchKey::QuantizedCUDA)
      .fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
  library("_", c10::DispatchKey::NestedTensorCUDA)
      .fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_nested>());
  // autograd asks for this where an error would end the process
  library("aten", c10::DispatchKey::NestedTensorCUDA)
      .impl("_nested_tensor_size", TORCH_FN(at::native::_nested_tensor_size));
}

} // namespace unstall
