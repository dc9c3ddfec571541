#include "about.h"

#include "asserts.h"

#include <ATen/core/enum_tag.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

namespace unstall {
namespace {

// CUDA's kernels of these bring a count to the host and wait for it, to know how large the result is.
const std::unordered_map<std::string, int64_t> bytes_read = {
    {"aten::nonzero", 8}, {"aten::_unique2", 8}, {"aten::unique_dim", 8}, {"aten::unique_consecutive", 8},
    {"aten::unique_dim_consecutive", 8}, {"aten::_unique", 8}, {"aten::equal", 1}, {"aten::bincount", 8},
    {"aten::masked_select", 8}, {"aten::repeat_interleave", 8}};

// Tensors of the CPU, of whatever size, may be among the arguments of these.
const std::unordered_set<std::string> takes_host_tensors = {
    "aten::_pack_padded_sequence", "aten::_ctc_loss", "aten::_use_cudnn_ctc_loss", "aten::_use_miopen_ctc_loss",
    "aten::_cudnn_ctc_loss", "aten::segment_reduce", "aten::bernoulli_"};

// Tensors of the CPU without dimensions may stand beside those of a device in what is computed element by element,
// and in these (native_functions.yaml: device_check: NoCheck).
const std::unordered_set<std::string> takes_host_scalars = {
    "aten::index_fill_", "aten::index_fill", "aten::fill_", "aten::masked_fill_", "aten::masked_fill", "aten::where",
    "aten::_scaled_dot_product_efficient_attention_backward", "aten::floor_divide", "aten::floor_divide_", "aten::eq_",
    "aten::ne_", "aten::ge_", "aten::le_", "aten::gt_", "aten::lt_", "aten::copysign_", "aten::heaviside_",
    "aten::__irshift__", "aten::rsub", "aten::mse_loss", "aten::smooth_l1_loss"};

bool is_scalar_friendly(const c10::OperatorHandle& op, const std::string& name) {
  return op.hasTag(at::Tag::pointwise) || name.rfind("aten::_foreach", 0) == 0 || name.rfind("aten::_fused", 0) == 0 ||
      takes_host_scalars.count(name) != 0;
}

// What these leave in their first argument does not depend on what was there.
const std::unordered_set<std::string> overwriting = {
    "aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::random_", "aten::bernoulli_",
    "aten::exponential_", "aten::log_normal_", "aten::cauchy_", "aten::geometric_"};

} // namespace

About::About(const c10::OperatorHandle& op)
    : name(op.operator_name()), number(name.name, name.overload_name) {
  const auto& schema = op.schema();
  for (const auto& argument : schema.arguments()) {
    written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
    out.push_back(written.back() && argument.kwarg_only());
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
  overwrites = overwriting.count(name.name) != 0;
  asserts = asserts_values(name);
  scalars = is_scalar_friendly(op, name.name);
  auto found = bytes_read.find(name.name);
  reads = found == bytes_read.end() ? 0 : found->second;
}

} // namespace unstall
