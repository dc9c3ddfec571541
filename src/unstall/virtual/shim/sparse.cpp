// Sparse tensors of the virtual GPU: COO, CSR, CSC, BSR and BSC. Each is made of dense ones: its indices and its values.
// The CPU's kernels compute with the same bytes, as for dense tensors; what a call reads and writes are the parts.
#include "sparse.h"

#include "asserts.h"
#include "call.h"
#include "waits.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>

#include <algorithm>
#include <string>
#include <unordered_set>

namespace unstall {
namespace {

using c10::DispatchKey;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;
using Parts = c10::SmallVector<Tensor, 3>;

// CUDA's kernels of these copy to the host how many elements there will be, and wait for it.
const std::unordered_set<std::string> counting = {
    "aten::_coalesce", "aten::_to_sparse", "aten::_to_sparse_csr", "aten::_to_sparse_csc", "aten::_to_sparse_bsr",
    "aten::_to_sparse_bsc", "aten::_sparse_sparse_matmul"};
// CUDA's kernels of these make a COO tensor coalesced first.
const std::unordered_set<std::string> multiplying = {"aten::mm", "aten::addmm", "aten::addmm_"};
constexpr int64_t COUNT_BYTES = 8;

bool is_sparse(const Tensor& tensor) {
  return tensor.defined() && (tensor.is_sparse() || tensor.key_set().has_any(c10::sparse_csr_ks));
}

at::SparseTensorImpl* coo(const Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl* compressed(const Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

// The dense tensors that a tensor is made of: itself if it is dense.
Parts parts_of(const Tensor& tensor) {
  if (!is_sparse(tensor)) return {tensor};
  if (tensor.is_sparse()) return {coo(tensor)->indices(), coo(tensor)->values()};
  auto* impl = compressed(tensor);
  return {impl->compressed_indices(), impl->plain_indices(), impl->values()};
}

void set_parts(const Tensor& tensor, const Tensor& like, const Parts& parts) {
  if (tensor.is_sparse()) {
    auto *impl = coo(tensor), *of = coo(like);
    impl->raw_resize_(of->sparse_dim(), of->dense_dim(), of->sizes());
    impl->set_indices_and_values_unsafe(parts[0], parts[1]);
    impl->set_coalesced(of->coalesced());
  } else {
    compressed(tensor)->set_member_tensors(parts[0], parts[1], parts[2], like.sizes());
  }
}

// Like `like`, of these parts, where they are.
Tensor sparse_of(const Tensor& like, const Parts& parts) {
  const c10::Device device = parts[0].device();
  Tensor made = like.is_sparse()
      ? at::detail::make_tensor<at::SparseTensorImpl>(
            c10::DispatchKeySet(device.is_cuda() ? DispatchKey::SparseCUDA : DispatchKey::SparseCPU), like.dtype())
      : at::detail::make_tensor<at::SparseCsrTensorImpl>(
            c10::DispatchKeySet(device.is_cuda() ? DispatchKey::SparseCsrCUDA : DispatchKey::SparseCsrCPU), device,
            like.layout(), like.dtype());
  set_parts(made, like, parts);
  return made;
}

DispatchKey key_of_cpu(c10::DispatchKeySet keys) {
  switch (keys.highestPriorityTypeId()) {
    case DispatchKey::SparseCUDA:
      return DispatchKey::SparseCPU;
    case DispatchKey::SparseCsrCUDA:
      return DispatchKey::SparseCsrCPU;
    default:
      return DispatchKey::CPU;
  }
}

// One call of an operator that takes or returns sparse tensors.
class SparseCall {
 public:
  SparseCall(const About& about, const OperatorHandle& op, DispatchKey key, Stack* stack)
      : about_(about), op_(op), key_(key), stack_(stack), first_(stack->size() - about.written.size()) {}

  void run() {
    device_ = device_of(about_, op_, c10::ArrayRef<IValue>(stack_->data() + first_, about_.written.size()));
    check_usable(device_);
    TORCH_CHECK_NOT_IMPLEMENTED(
        op_.hasComputedKernelForDispatchKey(key_), "the virtual GPU cannot run ", about_.name,
        " on sparse tensors: it computes by kernels of the CPU, and torch has none for this operator");
    TORCH_CHECK_NOT_IMPLEMENTED(
        about_.view || !capturing_here(device_), "the virtual GPU cannot capture ", about_.name,
        " with sparse tensors in a graph");
    OnDevice on_device(device_);
    if (!counts()) {
      launch();
      return;
    }
    check_finished(device_);
    Waiting wait(AWait{WaitKind::VALUE, COUNT_BYTES, false, true});
    log_read(device_, COUNT_BYTES, nullptr, launch());
    wait.over();
  }

 private:
  // Whether CUDA's kernels copy to the host how many elements there are.
  bool counts() const {
    return counting.count(about_.name.name) ||
        std::any_of(stack_->begin() + int64_t(first_), stack_->end(), [this](const IValue& value) {
             return coalesces_first(value);
           });
  }

  bool coalesces_first(const IValue& value) const {
    return multiplying.count(about_.name.name) && value.isTensor() && value.toTensor().is_sparse() &&
        !coo(value.toTensor())->coalesced();
  }

  // Returns whether the simulation of the launches includes the operator's read of a value.
  bool launch() {
    bool read = false;
    for (size_t i = first_; i < stack_->size(); i++)
      if (coalesces_first((*stack_)[i])) {
        Launch launch(OpName("sparse::_coalesce", ""), device_);
        launch.input(as_parts((*stack_)[i]));
        read = launch.log() || read;
      }
    return launch_itself() || read;
  }

  bool launch_itself() {
    const std::string name = "sparse" + about_.name.name.substr(about_.name.name.find("::"));
    Launch launch(OpName(name, about_.name.overload_name), device_);
    for (size_t i = 0; i < about_.written.size(); i++) {
      launch.input(as_parts((*stack_)[first_ + i]), about_.written[i]);
      (*stack_)[first_ + i] = to_cpu((*stack_)[first_ + i]);
    }
    const bool known = all_known();
    if (failed(device_)) raise_failure(device_);
    computed([&] { run_kernel(op_, nullptr, c10::DispatchKeySet(key_), stack_); });
    if (about_.any_written)
      for (size_t i = 0, arguments = pairs_.size(); i < arguments; i++) follow(i);
    size_t results = op_.schema().returns().size();
    for (size_t i = stack_->size() - results; i < stack_->size(); i++) {
      IValue& value = (*stack_)[i];
      if (!value.isTensor()) continue;
      value = to_cuda(value.toTensor());
      for (const Tensor& part : parts_of(value.toTensor())) {
        launch.output(part);
        if (!known) set_known(part, false);
      }
    }
    const bool writes = about_.any_written && about_.name.name != "aten::_coalesced_"; // which sets a flag
    return (writes || made_elements_) && launch.log();
  }

  // A sparse tensor as the list of its parts, and lists likewise.
  static IValue as_parts(const IValue& value) {
    c10::List<Tensor> list;
    bool any = false;
    auto add = [&](const Tensor& tensor) {
      any = any || is_sparse(tensor);
      for (Tensor& part : parts_of(tensor)) list.push_back(std::move(part));
    };
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList())
      for (const Tensor& one : value.toTensorVector()) add(one);
    return any ? IValue(std::move(list)) : value;
  }

  IValue to_cpu(const IValue& value) {
    if (value.isTensor()) return to_cpu(value.toTensor());
    if (value.isDevice() && value.toDevice().is_cuda()) return c10::Device(c10::kCPU);
    if (!value.isTensorList()) return value;
    c10::List<Tensor> list;
    for (const Tensor& one : value.toTensorVector()) list.push_back(to_cpu(one));
    return list;
  }

  Tensor to_cpu(const Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    Tensor made;
    if (is_sparse(tensor)) {
      Parts parts = parts_of(tensor);
      for (Tensor& part : parts) part = to_cpu(part);
      made = sparse_of(tensor, parts);
    } else {
      made = unstall::to_cpu(tensor);
    }
    pairs_.emplace_back(tensor, made);
    return made;
  }

  // The tensor that the CPU's kernel returned, on the virtual GPU: an argument or its part, a view of one, or a new one.
  Tensor to_cuda(const Tensor& cpu) {
    if (!cpu.defined() || !cpu.is_cpu()) return cpu;
    for (const auto& [cuda, on_cpu] : pairs_)
      if (on_cpu.is_same(cpu)) return cuda;
    Tensor made;
    if (is_sparse(cpu)) {
      Parts parts = parts_of(cpu);
      for (Tensor& part : parts) part = to_cuda(part);
      made = sparse_of(cpu, parts);
    } else {
      for (const auto& [cuda, on_cpu] : pairs_)
        if (!is_sparse(on_cpu) && on_cpu.is_alias_of(cpu)) return over(cpu, cuda.storage());
      made = unstall::to_cuda(cpu, device_);
      made_elements_ += size_t(cpu.numel());
    }
    pairs_.emplace_back(made, cpu);
    return made;
  }

  // An argument gets what the kernel wrote into it.
  void follow(size_t pair) {
    auto [cuda, cpu] = pairs_[pair]; // copies: to_cuda() adds pairs
    if (!is_sparse(cuda)) return unstall::follow(cuda, cpu);
    Parts before = parts_of(cuda), parts = parts_of(cpu);
    for (Tensor& part : parts) part = to_cuda(part);
    bool same = cuda.sizes() == cpu.sizes() && (!cuda.is_sparse() || coo(cuda)->coalesced() == coo(cpu)->coalesced());
    for (size_t i = 0; i < parts.size(); i++) same = same && parts[i].is_same(before[i]);
    if (!same) set_parts(cuda, cpu, parts);
  }

  bool all_known() const {
    return std::all_of(pairs_.begin(), pairs_.end(), [](const auto& pair) {
      return is_sparse(pair.first) || unstall::known(pair.first);
    });
  }

  const About& about_;
  const OperatorHandle& op_;
  DispatchKey key_;
  Stack* stack_;
  size_t first_;
  int device_ = 0;
  size_t made_elements_ = 0; // in new memory: 0 for a view, or a tensor of given parts, which no kernel computes
  c10::SmallVector<std::pair<Tensor, Tensor>, 8> pairs_; // a tensor of the virtual GPU, and what it is on the CPU
};

} // namespace

void redirect_sparse(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  SparseCall(about_of(op), op, key_of_cpu(keys), stack).run();
  drain_when_long();
}

namespace {

// As register_kernels() does for dense tensors. Else an operator that the CPU has a
// kernel for would be made of others.
void register_redirects(Kernels& kernels, torch::Library& library, DispatchKey of_cpu) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(of_cpu) || name.name.rfind("aten::", 0) != 0) continue;
    std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (!kernels.has(full))
      library.impl(full.c_str() + 6, torch::CppFunction::makeFromBoxedFunction<&redirect_sparse>());
  }
}

void embedding_bag_backward(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  constexpr size_t SPARSE = 9;
  if (torch::jit::peek(*stack, SPARSE, op.schema().arguments().size()).toBool()) redirect_sparse(op, keys, stack);
  else redirect(op, stack);
}

void refuse_of_cpu_alone(const OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "Could not run '", op.operator_name(),
      "' with arguments from the 'SparseCsrCUDA' backend. torch has no kernel of CUDA for this operator, so a GPU cannot "
      "run it either.");
}

} // namespace

void register_sparse_kernels() {
  // Copies, between devices as well, are copies of the parts.
  auto& coo = library("aten", DispatchKey::SparseCUDA);
  Kernels of_coo(coo);
  of_coo.impl("clone", TORCH_FN(at::native::clone_sparse));
  of_coo.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  of_coo.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  register_redirects(of_coo, coo, DispatchKey::SparseCPU);
  auto& csr = library("aten", DispatchKey::SparseCsrCUDA);
  Kernels of_csr(csr);
  of_csr.impl("clone", TORCH_FN(at::native::clone_sparse_compressed));
  of_csr.impl("copy_", TORCH_FN(at::native::copy_sparse_compressed_));
  for (const char* of_cpu_alone : {"_sparse_mm_reduce_impl", "_sparse_mm_reduce_impl_backward"})
    of_csr.impl(of_cpu_alone, torch::CppFunction::makeFromBoxedFunction<&refuse_of_cpu_alone>());
  register_redirects(of_csr, csr, DispatchKey::SparseCsrCPU);
  for (auto key : {DispatchKey::SparseCUDA, DispatchKey::SparseCsrCUDA})
    library("_", key).fallback(torch::CppFunction::makeFromBoxedFunction<&redirect_sparse>());
}

VIRTUAL_KERNELS(kernels) {
  for (const char* name :
       {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"})
    kernels.impl(name, torch::CppFunction::makeFromBoxedFunction<&redirect_sparse>());
  kernels.impl("_embedding_bag_backward", torch::CppFunction::makeFromBoxedFunction<&embedding_bag_backward>());
}

} // namespace unstall
