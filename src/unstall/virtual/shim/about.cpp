#include "call.h"

#include "asserts.h"
#include "device_values.h"
#include "devices.h"
#include "division.h"
#include "meta_kernels.h"
#include "tensors.h"

#include <ATen/core/enum_tag.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

namespace unstall {
namespace {

// CUDA's kernels of these copy a number to the host and wait for it: a count, to know how large the result is, or
// whether cuSOLVER failed.
const std::unordered_map<std::string, int64_t> bytes_read = {
    {"aten::nonzero", 8}, {"aten::_unique2", 8}, {"aten::unique_dim", 8}, {"aten::unique_consecutive", 8},
    {"aten::unique_dim_consecutive", 8}, {"aten::_unique", 8}, {"aten::bincount", 8}, {"aten::masked_select", 8},
    {"aten::repeat_interleave", 8}, {"aten::linalg_eig", 4}, {"aten::_linalg_eigvals", 4}};

// The arguments of these may be CPU tensors of any size.
const std::unordered_set<std::string> takes_host_tensors = {
    "aten::_pack_padded_sequence", "aten::_ctc_loss", "aten::_use_cudnn_ctc_loss", "aten::_use_miopen_ctc_loss",
    "aten::_cudnn_ctc_loss", "aten::segment_reduce", "aten::bernoulli_"};

// CPU tensors without dimensions may be mixed with a device's in element-wise operators, and in these
// (native_functions.yaml: device_check: NoCheck).
const std::unordered_set<std::string> takes_host_scalars = {
    "aten::index_fill_", "aten::index_fill", "aten::fill_", "aten::masked_fill_", "aten::masked_fill", "aten::where",
    "aten::_scaled_dot_product_efficient_attention_backward", "aten::floor_divide", "aten::floor_divide_", "aten::eq_",
    "aten::ne_", "aten::ge_", "aten::le_", "aten::gt_", "aten::lt_", "aten::copysign_", "aten::heaviside_",
    "aten::__irshift__", "aten::rsub", "aten::mse_loss", "aten::smooth_l1_loss"};

bool is_scalar_friendly(const c10::OperatorHandle& op, const std::string& name) {
  return op.hasTag(at::Tag::pointwise) || name.rfind("aten::_foreach", 0) == 0 || name.rfind("aten::_fused", 0) == 0 ||
      takes_host_scalars.count(name) != 0;
}

// These overwrite their first argument without reading it.
const std::unordered_set<std::string> overwriting = {
    "aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::random_", "aten::bernoulli_",
    "aten::exponential_", "aten::log_normal_", "aten::cauchy_", "aten::geometric_"};

// These find nothing by values, as `pointwise` operators do not, and lack that tag.
const std::unordered_set<std::string> untagged_elementwise = {
    "aten::_batch_norm_with_update", "aten::_fft_c2c", "aten::_fft_c2r", "aten::_fft_r2c", "aten::_prelu_kernel",
    "aten::_prelu_kernel_backward", "aten::complex", "aten::flip", "aten::floor_divide", "aten::hardswish",
    "aten::hardswish_backward", "aten::hardtanh", "aten::hardtanh_backward", "aten::huber_loss",
    "aten::huber_loss_backward", "aten::log_sigmoid_backward", "aten::log_sigmoid_forward", "aten::mse_loss_backward",
    "aten::polar", "aten::rsub", "aten::smooth_l1_loss_backward"};

const std::unordered_set<std::string> searching = {
    "aten::convolution", "aten::convolution_backward", "aten::cudnn_convolution", "aten::cudnn_convolution_transpose"};

} // namespace

About::About(const c10::OperatorHandle& op)
    : name(op.operator_name()), number(name.name, name.overload_name), refusals(name) {
  const auto& schema = op.schema();
  for (const auto& argument : schema.arguments()) {
    written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
    out.push_back(written.back() && argument.kwarg_only());
    any_written = any_written || written.back();
    if (argument.name() == "generator") generator = int(written.size()) - 1;
    if (argument.name() == "output_size" && name.name == "aten::repeat_interleave")
      output_size = int(written.size()) - 1;
  }
  for (const auto& result : schema.returns())
    view = result.alias_info() && !result.alias_info()->isWrite();
  draws = op.hasTag(at::Tag::nondeterministic_seeded) && generator < 0;
  host_tensors = takes_host_tensors.count(name.name) != 0;
  substitute = substitute_for(name);
  const auto* kernel_of_shapes = meta_kernel(name);
  structured = kernel_of_shapes != nullptr;
  shapes = substitute ? nullptr : kernel_of_shapes;
  overwrites = overwriting.count(name.name) != 0;
  asserts = asserts_values(name);
  divides = divides_integers(name);
  checks = name.name == "aten::all" || name.name == "aten::_is_all_true";
  tf32 = tf32_setting(name);
  if (searching.count(name.name)) search.emplace("cudnn::search_" + name.name.substr(name.name.find("::") + 2));
  if (name.name == "aten::convolution_backward") {
    first_gradient.emplace(name.name, "first");
    other_gradients.emplace(name.name, "others");
  }
  bool same_each_time = generator < 0 && !op.hasTag(at::Tag::nondeterministic_seeded);
  elementwise = !substitute && !shapes && same_each_time &&
      (op.hasTag(at::Tag::pointwise) || untagged_elementwise.count(name.name) != 0);
  scalars = is_scalar_friendly(op, name.name);
  auto found = bytes_read.find(name.name);
  reads = found == bytes_read.end() ? 0 : found->second;
}

namespace {

// The devices of a call's tensors: the first, and the first other one with its argument.
struct Places {
  const About& about;
  std::optional<c10::Device> first, other;
  size_t other_argument = 0;

  void add(const Tensor& tensor, size_t argument) {
    if (!tensor.defined() || !(tensor.is_cuda() || tensor.is_cpu())) return;
    if (tensor.is_cpu() && about.scalars && tensor.dim() == 0) return;
    if (!first) {
      first = tensor.device();
    } else if (tensor.device() != *first && !other) {
      other = tensor.device();
      other_argument = argument;
    }
  }

  // In the words of CUDA's kernels: of TensorIterator, and of the checks that are generated for the others. These take
  // the device of the first argument for right. Operators with a Meta kernel in C++ are structured.
  void refuse(const c10::OperatorHandle& op) const {
    const bool device_first = first->is_cuda();
    TORCH_CHECK(
        !about.scalars, "Expected all tensors to be on the same device, but found at least two devices, ",
        device_first ? *first : *other, " and ", device_first ? *other : *first, "!");
    const std::string name = about.name.name.substr(about.name.name.find("::") + 2);
    const std::string& overload = about.name.overload_name;
    std::string method = overload + "_" + name;
    if (about.structured) method = overload.empty() ? name : name + "_" + overload;
    for (bool each : about.out)
      if (each) method = name + "_" + overload + "_out";
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but got ",
        op.schema().arguments()[other_argument].name(), " is on ", *other, ", different from other tensors on ", *first,
        " (when checking argument in method wrapper_CUDA_", method, ")");
  }
};

} // namespace

int device_of(const About& about, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  Places places{about};
  std::optional<c10::Device> wanted;
  for (size_t i = 0; i < arguments.size(); i++)
    if (about.out[i] && arguments[i].isTensor()) places.add(arguments[i].toTensor(), i); // these are checked first
  for (size_t i = 0; i < arguments.size(); i++) {
    const c10::IValue& value = arguments[i];
    if (about.out[i] && value.isTensor()) continue;
    if (value.isTensor()) {
      places.add(value.toTensor(), i);
    } else if (value.isDevice()) {
      wanted = value.toDevice();
    } else if (is_list_of_tensors(value)) {
      for (const auto& one : value.toListRef())
        if (one.isTensor()) places.add(one.toTensor(), i);
    }
  }
  bool any = places.first && places.first->is_cuda();
  if (places.other) {
    any = true;
    const bool of_host = !places.first->is_cuda() || !places.other->is_cuda();
    if (!about.host_tensors || !of_host) places.refuse(op);
    if (!places.first->is_cuda()) std::swap(places.first, places.other);
  }
  if (!any && about.generator >= 0 && !(wanted && wanted->is_cuda())) {
    const c10::IValue& given = arguments[size_t(about.generator)];
    TORCH_CHECK(
        given.isNone() || !given.toGenerator().device().is_cuda(),
        "Expected a 'cpu' device type for generator but found 'cuda'");
  }
  return any ? places.first->index() : device_number(wanted ? *wanted : c10::Device(c10::kCUDA));
}

} // namespace unstall
