// The names of kernels are those that an H200 with torch 2.11 for CUDA 13.0 gave when called with each data type, beside
// those that the CPU gave for the same calls.
#include "lacking_types.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace unstall {
namespace {

// CUDA's names, by the CPU's, if they do not follow from these: see name_by_rule().
const std::unordered_map<std::string, const char*>& named_otherwise() {
  static const auto* all = new std::unordered_map<std::string, const char*>{
      {"GeluKernelImpl", "GeluCUDAKernelImpl"},
      {"GroupNormKernelImpl", "GroupNormKernelImpl"},
      {"LayerNormKernelImpl", "LayerNormKernelImpl"},
      {"_segment_reduce_cpu", "segment_reduce_cuda"},
      {"adaptive_avg_pool2d", "adaptive_avg_pool2d_cuda"},
      {"adaptive_max_pool2d", "adaptive_max_pool2d_cuda"},
      {"add_stub", "ufunc_add_CUDA"},
      {"addcdiv_cpu_out", "addcdiv_cuda"},
      {"addcmul_cpu_out", "addcmul_cuda"},
      {"addmm_impl_cpu_", "addmm_cuda"},
      {"avg_pool2d", "avg_pool2d_out_cuda_frame"},
      {"avg_pool3d_out_frame", "avg_pool3d_out_cuda"},
      {"baddbmm", "baddbmm_cuda"},
      {"batch_norm", "batch_norm_stats_cuda"},
      {"binary_cross_entropy", "binary_cross_entropy_out_cuda"},
      {"bmm", "baddbmm_cuda"},
      {"cdist", "cdist_cuda"},
      {"check_uniform_bounds", "check_uniform_bounds"},
      {"cholesky_cpu", "cholesky_cusolver"},
      {"clamp_max_scalar_cpu", "clamp_scalar_cuda"},
      {"clamp_min_scalar_cpu", "clamp_scalar_cuda"},
      {"cross", "cross_cuda"},
      {"cumprod_out_cpu", "cumprod_cuda"},
      {"cumsum_out_cpu", "cumsum_cuda"},
      {"digamma", "digamma_cuda"},
      {"div_cpu", "div_true_cuda"},
      {"dot", "dot"},
      {"exp2", "exp2_cuda"},
      {"fractional_max_pool2d_out_frame", "fractional_max_pool2d_out_cuda_frame"},
      {"fractional_max_pool3d_out_frame", "fractional_max_pool3d_out_frame"},
      {"ge_cpu", "compare_cuda"},
      {"grid_sampler3d_cpu", "grid_sampler_3d_cuda"},
      {"grid_sampler_2d_cpu_kernel_impl", "grid_sampler_2d_cuda"},
      {"gt_cpu", "compare_cuda"},
      {"index_add_", "index_add"},
      {"index_func_", "index_reduce"},
      {"index_put", "index_put"},
      {"index_reduce_func_exclude_input_init", "index_reduce_func_cuda_exclude_input_init"},
      {"isfinite", "isfinite"},
      {"isinf", "isinf"},
      {"ldl_factor_kernel_cpu", "ldl_factor_looped_cusolver"},
      {"le_cpu", "compare_cuda"},
      {"lerp_kernel_scalar", "lerp_cuda"},
      {"linalg_svd_cpu", "svd_cuda_gesvdjBatched"},
      {"log_sigmoid_cpu", "log_sigmoid_forward_cuda"},
      {"log_softmax_kernel_impl", "host_softmax"},
      {"log_softmax_lastdim_kernel_impl", "host_softmax"},
      {"logcumsumexp_out_cpu", "logcumsumexp_cuda"},
      {"lt_cpu", "compare_cuda"},
      {"lu_cpu", "lu_factor_cusolver"},
      {"masked_fill", "masked_fill_"},
      {"masked_scatter", "masked_scatter_"},
      {"masked_select", "index_cuda"},
      {"max_all", "max_all_cuda"},
      {"max_pool1d_impl", "max_pool2d_with_indices_out_cuda_frame"},
      {"max_pool2d", "max_pool2d_with_indices_out_cuda_frame"},
      {"max_pool3d", "max_pool3d_with_indices_out_frame"},
      {"max_unpool2d", "max_unpooling2d_forward_kernel"},
      {"max_unpool3d", "max_unpooling3d_forward_kernel"},
      {"maximum_cpu", "max_elementwise_cuda"},
      {"median_out", "median_out_impl"},
      {"min_all", "min_all_cuda"},
      {"minimum_cpu", "min_elementwise_cuda"},
      {"mode_cpu", "cuda_mode"},
      {"multi_margin_loss_cpu_kernel", "multi_margin_loss_cuda"},
      {"multilabel_margin_loss_forward_out_frame", "multilabel_margin_loss_forward_kernel"},
      {"nan_to_num", "nan_to_num_cuda"},
      {"nll_loss_out_frame", "nll_loss_forward_no_reduce_cuda_kernel"},
      {"nonzero_count_cpu", "nonzero_cuda"},
      {"polygamma", "polygamma_cuda"},
      {"pow", "pow_cuda"},
      {"prod_out_cpu", "prod_cuda"},
      {"random_update_from_to", "random_update_from_to"},
      {"reflection_pad1d", "reflection_pad1d_out"},
      {"reflection_pad2d", "reflection_pad2d_out_template"},
      {"reflection_pad3d", "reflection_pad3d_out_cuda"},
      {"replication_pad1d", "replication_pad1d_cuda"},
      {"replication_pad2d", "replication_pad2d_cuda"},
      {"replication_pad3d", "replication_pad3d_cuda"},
      {"rms_norm", "LayerNormKernelImpl"},
      {"scatter_gather_tensor_cpu", "cuda_scatter_gather_base_kernel_func"},
      {"scatter_gather_tensor_cpu_reduce_amax", "cuda_scatter_gather_base_kernel_func"},
      {"scatter_gather_tensor_cpu_reduce_amin", "cuda_scatter_gather_base_kernel_func"},
      {"scatter_gather_tensor_cpu_reduce_mean", "cuda_scatter_gather_base_kernel_func"},
      {"scatter_reduce_exclude_input_init", "scatter_reduce_exclude_input_init"},
      {"softmax_kernel_impl", "host_softmax"},
      {"softmax_lastdim_kernel_impl", "host_softmax"},
      {"softshrink_check", "softshrink_check"},
      {"sorting_kernel_method_name", "sort"},
      {"take_put_cpu", "put_cuda"},
      {"topk_cpu", "topk_out_cuda"},
      {"trace", "sum_cuda"},
      {"trigamma", "trigamma_cuda"},
      {"tril", "triu_tril_cuda_template"},
      {"triu", "triu_tril_cuda_template"},
      {"unique", "unique"},
      {"vdot", "vdot"},
  };
  return *all;
}

// Types that CUDA's kernels have and the CPU's lack, by the names of the CPU's kernels.
const std::unordered_map<std::string, std::unordered_set<std::string>>& of_cuda_alone() {
  static const std::unordered_set<std::string> complex{"ComplexHalf"}, moved{"ComplexHalf", "UInt16", "Float8_e4m3fn"},
      made{"Bool", "Byte", "UInt16", "Float", "ComplexHalf", "ComplexFloat", "Float8_e4m3fn"};
  static const auto* all = [] {
    auto* table = new std::unordered_map<std::string, std::unordered_set<std::string>>{
        {"abs_cpu", {"Bool"}}, {"median_cpu", {"Bool", "Float8_e4m3fn"}}, {"index_select", {"UInt16"}},
        {"trace", {"Bool", "UInt16", "ComplexHalf"}}, {"eye", {"UInt16", "ComplexHalf"}}, {"tril_indices", made},
        {"triu_indices", made}};
    for (const char* name : {"flip_cpu", "isin_default_cpu", "scatter_gather_tensor_cpu"}) table->emplace(name, moved);
    for (const char* name :
         {"acos_vml_cpu", "acosh_cpu", "angle_cpu", "asin_vml_cpu", "asinh_cpu", "atan_vml_cpu", "atanh_cpu",
          "cos_vml_cpu", "cosh_cpu", "div_cpu", "equal_cpu", "exp_vml_cpu", "lerp_kernel_scalar",
          "log_vml_cpu", "logaddexp_cpu", "pow", "prod_out_cpu", "rsqrt_cpu", "sigmoid_cpu", "sin_vml_cpu",
          "sinh_cpu", "sqrt_vml_cpu", "sum_cpu", "tan_vml_cpu", "tanh_vml_cpu"})
      table->emplace(name, complex);
    return table;
  }();
  return *all;
}

void replace(std::string& text, std::string_view old, std::string_view by) {
  if (auto at = text.find(old); at != std::string::npos) text.replace(at, old.size(), by);
}

// As most are named: exp_vml_cpu is exp_cuda, sigmoid_cpu_reduced_float is sigmoid_cuda. Empty if the name has no "cpu".
std::string name_by_rule(std::string cpu) {
  replace(cpu, "_cpu_reduced_float", "_cpu");
  if (auto found = named_otherwise().find(cpu); found != named_otherwise().end()) return found->second;
  if (cpu.find("_cpu") == std::string::npos) return "";
  replace(cpu, "_vml_cpu", "_cpu");
  replace(cpu, "_cpu", "_cuda");
  return cpu;
}

// The operator's own if CUDA's is unknown.
std::string name_of_cuda(const std::string& cpu, const std::string& op) {
  if (op.rfind("upsample_", 0) == 0) return op + "_out_frame";
  if (op.rfind("_upsample_", 0) == 0) { // _upsample_nearest_exact2d and _upsample_bilinear2d_aa are kinds of the others
    std::string plain = op.substr(1);
    for (const char* kind : {"_exact", "_aa"}) replace(plain, kind, "");
    return plain + "_out_frame";
  }
  std::string name = name_by_rule(cpu);
  return name.empty() ? op : name;
}

} // namespace

std::optional<Lacking> Lacking::of(const c10::NotImplementedError& error) {
  constexpr std::string_view BETWEEN = "\" not implemented for '";
  const std::string_view text = error.what_without_backtrace();
  const auto at = text.find(BETWEEN), end = text.rfind('\'');
  if (text.empty() || text[0] != '"' || at == text.npos || end < at + BETWEEN.size()) return std::nullopt;
  const auto type = at + BETWEEN.size();
  return Lacking{std::string(text.substr(1, at - 1)), std::string(text.substr(type, end - type))};
}

void raise_as_cuda(const c10::OperatorName& name, const Lacking& lacking) {
  auto found = of_cuda_alone().find(lacking.kernel);
  TORCH_CHECK_NOT_IMPLEMENTED(
      found == of_cuda_alone().end() || !found->second.count(lacking.type), "the virtual GPU cannot run ", name,
      " for '", lacking.type, "': it computes by kernels of the CPU, and torch's for this operator lack this type");
  const std::string op = name.name.substr(name.name.find("::") + 2);
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "\"", name_of_cuda(lacking.kernel, op), "\" not implemented for '", lacking.type, "'");
}

} // namespace unstall
