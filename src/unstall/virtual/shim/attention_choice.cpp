// Which kernel scaled_dot_product_attention takes, by the GPU's compute capability: in the order of torch >= 2.11 with
// cuDNN 9.19, for what each of them can (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp). An H200 chose the same:
// cuDNN, flash, memory-efficient, math.
#include "devices.h"
#include "kernels.h"

#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace unstall {
namespace {

using sdp::SDPBackend;
using sdp::sdp_params;

constexpr auto half_types = std::to_array<at::ScalarType>({at::kHalf, at::kBFloat16});
constexpr auto efficient_types = std::to_array<at::ScalarType>({at::kHalf, at::kFloat, at::kBFloat16});
constexpr auto efficient_types_of_turing = std::to_array<at::ScalarType>({at::kHalf, at::kFloat});
constexpr int64_t LARGEST_HEAD = 256;
// What the tensor cores read at a time.
constexpr int64_t ALIGNED_BYTES = 16;
// The first numbers of compute capabilities.
constexpr int AMPERE = 8, HOPPER = 9, BLACKWELL = 10;

bool on_one_gpu(const sdp_params& p) {
  return p.query.is_cuda() && p.key.is_cuda() && p.value.is_cuda();
}

bool cudnn_shapes(const sdp_params& p) {
  int64_t head = p.query.size(3), value_head = p.value.size(3);
  if (head > LARGEST_HEAD || value_head > LARGEST_HEAD || head % 8 || value_head % 8) return false;
  if (p.key.size(2) == 1) return false;
  return p.dropout == 0.0 || p.query.size(2) != 1;
}

bool can_cudnn(const sdp_params& p, bool debug) {
  if (!at::globalContext().userEnabledCuDNNSDP()) {
    if (debug) TORCH_WARN("cuDNN attention has been runtime disabled.");
    return false;
  }
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly()) {
    if (debug) TORCH_WARN("cuDNN SDPA is not deterministic.");
    return false;
  }
  return settings().major >= AMPERE && on_one_gpu(p) && sdp::check_tensor_shapes(p, debug) &&
      sdp::check_tensor_dtype(p, half_types, debug) && sdp::check_attn_mask_shape(p, debug) &&
      sdp::check_nonzero_sequence_lengths_dense(p, debug) &&
      sdp::check_last_dim_stride_equals_1_dense<true>(p, debug) &&
      sdp::check_batch_size_and_num_heads_dense<true, false>(p, debug) && cudnn_shapes(p);
}

bool can_flash(const sdp_params& p, bool debug) {
  if (settings().major < AMPERE) {
    if (debug) TORCH_WARN("Flash attention only supports gpu architectures in the range [sm80, sm121].");
    return false;
  }
  if (!sdp::check_runtime_disabled_flash(p, debug) || !on_one_gpu(p) || !sdp::check_tensor_shapes(p, debug) ||
      !sdp::check_for_attn_mask(p, debug))
    return false;
  int64_t head = p.query.size(-1);
  if (head != p.key.size(-1) || head != p.value.size(-1) || head > LARGEST_HEAD) {
    if (debug)
      TORCH_WARN(
          "Flash attention requires q,k,v to have the same last dimension and to be less than or equal to 256. Got ",
          head, ", ", p.key.size(-1), ", ", p.value.size(-1), " instead.");
    return false;
  }
  if (p.is_causal && p.query.size(-2) != p.key.size(-2)) {
    if (debug) TORCH_WARN("Flash attention does not support the is_causal flag when seqlen_q != seqlen_k.");
    return false;
  }
  return sdp::check_tensor_dtype(p, half_types, debug) &&
      sdp::check_batch_size_and_num_heads_dense<true>(p, debug) &&
      sdp::check_nonzero_sequence_lengths_dense(p, debug) &&
      sdp::check_last_dim_stride_equals_1_dense<true>(p, debug);
}

bool can_efficient(const sdp_params& p, bool debug) {
  if (!sdp::check_runtime_disabled_mem_efficient(p, debug) || !on_one_gpu(p) || !sdp::check_tensor_shapes(p, debug))
    return false;
  int64_t head = p.query.size(-1), value_head = p.value.size(-1);
  bool on_tensor_cores = settings().major >= AMPERE || p.query.element_size() == 2;
  int64_t alignment = on_tensor_cores ? ALIGNED_BYTES / p.query.element_size() : 1;
  if (head != p.key.size(-1) || head % alignment || value_head % alignment || !head || !value_head) {
    if (debug)
      TORCH_WARN(
          "Mem efficient attention requires last dimension of inputs to be divisible by ", alignment, ". Got ", head,
          ", ", p.key.size(-1), ", ", value_head, " instead.");
    return false;
  }
  return sdp::check_nonzero_sequence_lengths_dense(p, debug) &&
      sdp::check_last_dim_stride_equals_1_dense<false>(p, debug) &&
      sdp::check_batch_size_and_num_heads_dense<false>(p, debug) &&
      (settings().major >= AMPERE ? sdp::check_tensor_dtype(p, efficient_types, debug)
                                  : sdp::check_tensor_dtype(p, efficient_types_of_turing, debug));
}

// cuDNN is first on the GPUs on which torch prefers it. Once, so that it does not overwrite an order that the program
// sets later, or by sdpa_kernel(set_priority=True).
const std::array<SDPBackend, at::num_sdp_backends>& order(std::array<SDPBackend, at::num_sdp_backends>& chosen) {
  static const bool initialised = [] {
    if (settings().major != HOPPER && settings().major != BLACKWELL) return true;
    at::globalContext().setSDPPriorityOrder(
        {int64_t(SDPBackend::cudnn_attention), int64_t(SDPBackend::flash_attention),
         int64_t(SDPBackend::efficient_attention), int64_t(SDPBackend::math)});
    return true;
  }();
  (void)initialised;
  chosen = at::globalContext().sDPPriorityOrder();
  return chosen;
}

int64_t choose(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double dropout,
    bool causal, std::optional<double>, bool grouped) {
  sdp_params params{query, key, value, mask, dropout, causal, grouped};
  std::array<SDPBackend, at::num_sdp_backends> backends{};
  for (auto backend : order(backends)) {
    bool can = false;
    switch (backend) {
      case SDPBackend::cudnn_attention: can = can_cudnn(params, false); break;
      case SDPBackend::flash_attention: can = can_flash(params, false); break;
      case SDPBackend::efficient_attention: can = can_efficient(params, false); break;
      case SDPBackend::math: can = at::globalContext().userEnabledMathSDP(); break;
      default: break;
    }
    if (can) return int64_t(backend);
  }
  TORCH_WARN("Memory efficient kernel not used because:");
  can_efficient(params, true);
  TORCH_WARN("Flash attention kernel not used because:");
  can_flash(params, true);
  TORCH_WARN("cuDNN attention kernel not used because:");
  can_cudnn(params, true);
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

} // namespace

VIRTUAL_KERNELS(kernels) {
  kernels.impl("_fused_sdp_choice", TORCH_FN(choose));
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose);
}

} // namespace unstall
