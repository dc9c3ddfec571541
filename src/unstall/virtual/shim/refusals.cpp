// What an H200 refused with torch 2.11 for CUDA 13.0, in its words.
#include "refusals.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>

namespace unstall {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

bool floating(c10::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

bool floating_or_complex(c10::ScalarType type) {
  return floating(type) || type == at::kComplexFloat || type == at::kComplexDouble || type == at::kComplexHalf;
}

bool not_half(c10::ScalarType type) {
  return type != at::kHalf && type != at::kBFloat16;
}

struct Types {
  const char* kernel;
  bool (*takes)(c10::ScalarType);
};

const std::unordered_map<std::string, Types>& by_type() {
  static const Types matrices{"addmm_cuda", floating_or_complex}, batches{"baddbmm_cuda", floating_or_complex},
      vector{"addmv_impl_cuda", floating_or_complex}, dot{"dot", floating_or_complex},
      norm{"LayerNormKernelImpl", floating};
  static const auto* all = new std::unordered_map<std::string, Types>{
      {"mm", matrices}, {"addmm", matrices}, {"addmm_", matrices}, {"_addmm_activation", matrices},
      {"linear", matrices}, {"bmm", batches}, {"baddbmm", batches}, {"baddbmm_", batches}, {"mv", vector},
      {"addmv", vector}, {"addmv_", vector}, {"dot", dot}, {"vdot", dot}, {"native_layer_norm", norm},
      {"_fused_rms_norm", norm}, {"max_pool2d_with_indices", {"max_pool2d_with_indices_out_cuda_frame", floating}},
      {"avg_pool2d", {"avg_pool2d_out_cuda_frame", floating}},
      {"upsample_bilinear2d", {"upsample_bilinear2d_out_frame", floating}}, {"_cdist_forward", {"cdist_cuda", not_half}},
      {"geqrf", {"geqrf_cuda", not_half}}, {"linalg_qr", {"geqrf_cuda", not_half}},
      {"_linalg_eigh", {"linalg_eigh_cuda", not_half}}, {"_linalg_svd", {"svd_cuda_gesvdjBatched", not_half}},
      {"_linalg_det", {"lu_factor_cusolver", not_half}}, {"linalg_lu_factor_ex", {"lu_factor_cusolver", not_half}}};
  return *all;
}

struct Varies {
  const char* kernel;
  bool (*condition)(Arguments);
};

const std::unordered_map<std::string, Varies>& by_chance() {
  static const auto* all = new std::unordered_map<std::string, Varies>{
      {"histc", {"_histc_cuda with floating point input",
                 [](Arguments given) { return given[0].toTensor().is_floating_point(); }}},
      {"bincount", {"_bincount_cuda", [](Arguments given) { return given[1].isTensor(); }}},
      {"put_", {"put_", [](Arguments given) { return given[3].toBool(); }}},
      {"scatter_reduce", {"scatter_reduce_cuda_prod_",
                          [](Arguments given) { return given[4].toStringView() == "prod"; }}},
      {"scatter_reduce_", {"scatter_reduce_cuda_prod_",
                           [](Arguments given) { return given[4].toStringView() == "prod"; }}},
      {"_embedding_bag_backward", {"embedding_bag_backward_cuda_max",
                                   [](Arguments given) { return given[8].toInt() == 2; }}},
      {"index_reduce", {"index_reduce_cuda", nullptr}},
      {"index_reduce_", {"index_reduce_cuda", nullptr}},
      {"nll_loss2d_forward", {"nll_loss2d_forward_out_cuda_template", nullptr}},
      {"nll_loss2d_backward", {"nll_loss2d_backward_out_cuda_template", nullptr}},
      {"_ctc_loss_backward", {"ctc_loss_backward_gpu", nullptr}},
      {"_adaptive_avg_pool2d_backward", {"adaptive_avg_pool2d_backward_cuda", nullptr}},
      {"_adaptive_avg_pool3d_backward", {"adaptive_avg_pool3d_backward_cuda", nullptr}},
      {"adaptive_max_pool2d_backward", {"adaptive_max_pool2d_backward_cuda", nullptr}},
      {"avg_pool3d_backward", {"avg_pool3d_backward_cuda", nullptr}},
      {"max_pool3d_with_indices_backward", {"max_pool3d_with_indices_backward_cuda", nullptr}},
      {"upsample_linear1d_backward", {"upsample_linear1d_backward_out_cuda", nullptr}},
      {"upsample_bicubic2d_backward", {"upsample_bicubic2d_backward_out_cuda", nullptr}},
      {"_upsample_bilinear2d_aa_backward", {"upsample_bilinear2d_aa_backward_out_cuda", nullptr}},
      {"grid_sampler_2d_backward", {"grid_sampler_2d_backward_cuda", nullptr}},
      {"reflection_pad1d_backward", {"reflection_pad1d_backward_out_cuda", nullptr}},
      {"reflection_pad3d_backward", {"reflection_pad3d_backward_out_cuda", nullptr}},
      {"median.dim", {"median CUDA with indices output", nullptr}},
      {"median.dim_values", {"median CUDA with indices output", nullptr}},
      {"nanmedian.dim", {"median CUDA with indices output", nullptr}},
      {"nanmedian.dim_values", {"median CUDA with indices output", nullptr}}};
  return *all;
}

} // namespace

Refusals::Refusals(const c10::OperatorName& name) {
  const std::string aten = "aten::";
  if (name.name.rfind(aten, 0) != 0) return;
  const std::string plain = name.name.substr(aten.size());
  by_cudnn_ = plain == "convolution" || plain == "_convolution" || plain == "cudnn_convolution";
  if (auto found = by_type().find(plain); found != by_type().end()) {
    kernel_ = found->second.kernel;
    takes_ = found->second.takes;
  }
  auto varying = by_chance().find(plain);
  if (varying == by_chance().end()) varying = by_chance().find(plain + "." + name.overload_name);
  if (varying != by_chance().end()) {
    varies_ = varying->second.kernel;
    varies_if_ = varying->second.condition;
  }
  any = by_cudnn_ || kernel_ || varies_;
}

void Refusals::check(Arguments arguments) const {
  if ((kernel_ || by_cudnn_) && arguments[0].isTensor() && arguments[0].toTensor().numel()) {
    const auto type = arguments[0].toTensor().scalar_type();
    TORCH_CHECK_NOT_IMPLEMENTED(
        !kernel_ || takes_(type), "\"", kernel_, "\" not implemented for '", c10::toString(type), "'");
    TORCH_CHECK(
        !by_cudnn_ || floating_or_complex(type), "getCudnnDataTypeFromScalarType() not supported for ",
        c10::toString(type));
  }
  if (varies_ && at::globalContext().deterministicAlgorithms() && (!varies_if_ || varies_if_(arguments)))
    at::globalContext().alertNotDeterministic(varies_);
}

} // namespace unstall
