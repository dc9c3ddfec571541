// The redirecting kernel: any operator of the virtual GPU by the kernel of the CPU, over the same bytes.
#include "generator.h"
#include "graphs.h"
#include "keeper.h"
#include "redirect.h"
#include "substitutes.h"
#include "twins.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <mutex>
#include <unordered_map>

namespace unstall {
namespace {

using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

// CUDA's kernels of these bring a count to the host and wait for it, to know how large the result is.
const std::unordered_map<std::string, int64_t> bytes_read = {
    {"aten::nonzero", 8}, {"aten::_unique2", 8}, {"aten::unique_dim", 8}, {"aten::unique_consecutive", 8},
    {"aten::unique_dim_consecutive", 8}, {"aten::_unique", 8}, {"aten::equal", 1}, {"aten::bincount", 8},
    {"aten::masked_select", 8}, {"aten::repeat_interleave", 8}, {"aten::multinomial", 1}};

// Tensors of the CPU, of whatever size, may be among the arguments of these.
const std::unordered_set<std::string> takes_host_tensors = {
    "aten::_pack_padded_sequence", "aten::_ctc_loss", "aten::_use_cudnn_ctc_loss", "aten::_cudnn_ctc_loss",
    "aten::segment_reduce",
    "aten::bernoulli_"};

// Tensors of the CPU without dimensions may stand beside those of a device in what is computed element by element,
// and in these (native_functions.yaml: device_check: NoCheck).
const std::unordered_set<std::string> takes_host_scalars = {
    "aten::index_fill_", "aten::index_fill", "aten::fill_", "aten::masked_fill_", "aten::masked_fill", "aten::where",
    "aten::_scaled_dot_product_efficient_attention_backward"};

bool is_scalar_friendly(const OperatorHandle& op, const std::string& name) {
  return op.hasTag(at::Tag::pointwise) || name.rfind("aten::_foreach", 0) == 0 || name.rfind("aten::_fused", 0) == 0 ||
      takes_host_scalars.count(name) != 0;
}

struct About {
  explicit About(const OperatorHandle& op)
      : name(op.operator_name()), number(name.name, name.overload_name) {
    const auto& schema = op.schema();
    for (const auto& argument : schema.arguments()) {
      written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
      any_written = any_written || written.back();
      if (argument.name() == "generator") generator = int(written.size()) - 1;
      if (argument.name() == "output_size" && name.name == "aten::repeat_interleave")
        told_size = int(written.size()) - 1;
    }
    for (const auto& result : schema.returns())
      view = result.alias_info() && !result.alias_info()->isWrite();
    draws = op.hasTag(at::Tag::nondeterministic_seeded) && generator < 0;
    host_tensors = takes_host_tensors.count(name.name) != 0;
    substitute = substitute_for(name);
    scalars = is_scalar_friendly(op, name.name);
    auto found = bytes_read.find(name.name);
    reads = found == bytes_read.end() ? 0 : found->second;
  }

  c10::OperatorName name;
  OpName number;
  c10::SmallVector<bool, 8> written; // of each argument
  bool any_written = false, view = false, draws = false, host_tensors = false, scalars = false;
  int generator = -1, told_size = -1; // arguments
  int64_t reads = 0;
  const Substitute* substitute; // nullptr: the CPU's own kernel

  bool stays_on_host(size_t result) const { return substitute && substitute->host_outputs >> result & 1; }
};

// One call: its arguments as they were, and as the CPU's kernel gets them.
class Call {
 public:
  Call(const About& about, const OperatorHandle& op, Stack* stack)
      : about_(about), op_(op), stack_(stack), first_(stack->size() - about.written.size()) {}

  void run() {
    look();
    bool reads = about_.reads && (about_.told_size < 0 || argument(size_t(about_.told_size)).isNone());
    Launch launch(about_.number, device_);
    for (size_t i = 0; i < about_.written.size(); i++) launch.input(argument(i), about_.written[i]);
    for (size_t i = 0; i < about_.written.size(); i++) twin(argument(i));
    compute();
    size_t results = op_.schema().returns().size();
    size_t elements = 0;
    size_t first_result = stack_->size() - results;
    for (size_t i = 0; i < results; i++)
      if (!about_.stays_on_host(i)) back((*stack_)[first_result + i]);
    if (about_.any_written)
      for (auto& [cuda, cpu] : pairs_) follow(cuda, cpu);
    for (size_t i = stack_->size() - results; i < stack_->size(); i++) elements += output((*stack_)[i], launch);
    if (results == 0)
      for (auto& pair : pairs_) elements += size_t(pair.first.numel());
    if (!about_.view && elements) launch.log();
    if (reads) log_read(device_, about_.reads);
  }

 private:
  IValue& argument(size_t i) { return (*stack_)[first_ + i]; }

  // Finds the device that this is for; refuses arguments on several.
  void look() {
    std::optional<c10::Device> wanted;
    for (size_t i = 0; i < about_.written.size(); i++) {
      const IValue& value = argument(i);
      if (value.isTensor()) {
        look_at(value.toTensor(), i);
      } else if (value.isDevice()) {
        wanted = value.toDevice();
      } else if (value.isTensorList() || value.isOptionalTensorList()) {
        for (const auto& one : value.toListRef())
          if (one.isTensor()) look_at(one.toTensor(), i);
      }
    }
    bool any = first_device_ && first_device_->is_cuda();
    if (other_device_) {
      any = true;
      if (!first_device_->is_cuda()) std::swap(first_device_, other_device_);
      if (!about_.host_tensors || other_device_->is_cuda()) refuse_devices();
    }
    device_ = any ? first_device_->index() : device_number(wanted ? *wanted : c10::Device(c10::kCUDA));
  }

  void look_at(const Tensor& tensor, size_t i) {
    if (!tensor.defined() || !(tensor.is_cuda() || tensor.is_cpu())) return;
    if (tensor.is_cpu() && about_.scalars && tensor.dim() == 0) return;
    if (!first_device_) {
      first_device_ = tensor.device();
    } else if (tensor.device() != *first_device_ && !other_device_) {
      other_device_ = tensor.device();
      other_ = i;
    }
  }

  // In the words of CUDA's kernels: of TensorIterator, and of the checks that are generated for the others.
  void refuse_devices() const {
    TORCH_CHECK(
        !about_.scalars, "Expected all tensors to be on the same device, but found at least two devices, ",
        *first_device_, " and ", *other_device_, "!");
    std::string method = about_.name.name.substr(about_.name.name.find("::") + 2);
    if (!about_.name.overload_name.empty()) method += "_" + about_.name.overload_name;
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but got ", op_.schema().arguments()[other_].name(),
        " is on ", *other_device_, ", different from other tensors on ", *first_device_,
        " (when checking argument in method wrapper_CUDA_", method, ")");
  }

  Tensor twin_of(const Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    Tensor cpu = to_cpu(tensor);
    pairs_.emplace_back(tensor, cpu);
    return cpu;
  }

  void twin(IValue& value) {
    if (value.isTensor()) {
      value = twin_of(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& one : value.toTensorVector()) list.push_back(twin_of(one));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& one : value.toOptionalTensorVector())
        list.push_back(one ? std::optional<Tensor>(twin_of(*one)) : std::nullopt);
      value = std::move(list);
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      value = c10::Device(c10::kCPU);
    }
  }

  void compute() {
    TORCH_CHECK_NOT_IMPLEMENTED(
        about_.substitute || op_.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
        "the virtual GPU cannot run ", about_.name, ": it computes by kernels of the CPU, and torch has none for this operator");
    std::optional<InsteadOfDefault> instead;
    if (about_.draws) instead.emplace(device_);
    if (about_.generator >= 0) {
      auto& given = argument(size_t(about_.generator));
      given = draw_from(given.isNone() ? std::nullopt : std::optional(given.toGenerator()), device_);
    }
    OnDevice on_device(device_);
    computed([&] {
      c10::DispatchKeySet keys(c10::DispatchKey::CPU);
      if (about_.substitute) about_.substitute->kernel.callBoxed(op_, keys, stack_);
      else op_.redispatchBoxed(keys, stack_);
    });
  }

  // The tensor that the CPU's kernel returned, on the virtual GPU: an argument itself, a view of one, or a new one.
  Tensor back_from(const Tensor& cpu) {
    if (!cpu.defined() || !cpu.is_cpu()) return cpu;
    for (auto& [cuda, twin] : pairs_)
      if (twin.is_same(cpu)) return cuda;
    if (cpu.has_storage()) {
      auto* bytes = cpu.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      for (auto& [cuda, twin] : pairs_)
        if (twin.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == bytes)
          return over(cpu, cuda.storage());
    }
    Tensor fresh = to_cuda(cpu, device_);
    pairs_.emplace_back(fresh, cpu); // what else is returned may be a view of it
    return fresh;
  }

  void back(IValue& value) {
    if (value.isTensor()) {
      value = back_from(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& one : value.toTensorVector()) list.push_back(back_from(one));
      value = std::move(list);
    }
  }

  static size_t output(const IValue& value, Launch& launch) {
    if (value.isTensor()) {
      launch.output(value.toTensor());
      return value.toTensor().defined() ? size_t(value.toTensor().numel()) : 0;
    }
    if (!value.isTensorList()) return 1;
    size_t elements = 0;
    for (const Tensor& one : value.toTensorVector()) {
      launch.output(one);
      elements += size_t(one.numel());
    }
    return elements;
  }

  const About& about_;
  const OperatorHandle& op_;
  Stack* stack_;
  size_t first_;
  int device_ = 0;
  std::optional<c10::Device> first_device_, other_device_; // of tensors
  size_t other_ = 0; // the argument on the other device
  c10::SmallVector<std::pair<Tensor, Tensor>, 8> pairs_; // of the virtual GPU, its twin of the CPU
};

// One for each operator: what does not change from call to call is worked out once.
struct Kernel final : c10::OperatorKernel {
  explicit Kernel(const OperatorHandle& op) : about(op) {}
  void operator()(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    Call(about, op, stack).run();
    drain_when_long();
  }
  About about;
};

// For operators that were registered after this was loaded, such as torchvision's.
void fallback(const OperatorHandle& op, Stack* stack) {
  redirect(op, stack);
}

void refuse(const OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "the virtual GPU computes dense tensors only: it cannot run ", op.operator_name(),
      " on sparse, quantized or nested tensors");
}

std::vector<void (*)(Kernels&)>& files() {
  static auto* files = new std::vector<void (*)(Kernels&)>;
  return *files;
}

torch::Library* library(const char* ns, c10::DispatchKey key) {
  return new torch::Library(torch::Library::IMPL, ns, key, __FILE__, __LINE__); // for good
}

} // namespace

void redirect(const OperatorHandle& op, Stack* stack) {
  static std::mutex lock;
  static auto* known = new std::unordered_map<c10::OperatorName, About>;
  const About* about = nullptr;
  {
    std::lock_guard guard(lock);
    auto found = known->find(op.operator_name());
    if (found == known->end()) found = known->emplace(op.operator_name(), About(op)).first;
    about = &found->second; // elements of the map stay where they are
  }
  Call(*about, op, stack).run();
  drain_when_long();
}

KernelsOfFile::KernelsOfFile(void (*add)(Kernels&)) {
  files().push_back(add);
}

void register_kernels() {
  auto* aten = library("aten", c10::DispatchKey::CUDA);
  Kernels kernels(*aten);
  for (auto* add : files()) add(kernels);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || name.name.rfind("aten::", 0) != 0) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (kernels.has(full)) continue;
    aten->impl(full.c_str() + 6, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(*op)));
  }
  library("_", c10::DispatchKey::CUDA)->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  for (auto key : {c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::QuantizedCUDA,
                   c10::DispatchKey::NestedTensorCUDA})
    library("_", key)->fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

} // namespace unstall
