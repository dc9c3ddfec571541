// The fast path of torch's nn.MultiheadAttention and nn.TransformerEncoderLayer in inference: on CUDA, several kernels.
// The steps are those of ATen's native_multi_head_attention_cuda and transformer_encoder_layer_forward.
#include "kernels.h"
#include "substitutes.h"

#include <ATen/Functions.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace unstall {
namespace {

constexpr int64_t PACKED = 3; // query, key and value: one product, and one tensor
constexpr int64_t HEAD_MULTIPLE = 8;

// (batch, length, heads * head) as (batch, heads, length, head), a view
Tensor by_head(const Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

// Whether one of the fused attentions takes the heads of `x`. They give no weights, and take no mask of this form.
bool takes_fused(const Tensor& x, int64_t heads) {
  if ((x.size(2) / heads) % HEAD_MULTIPLE) return false;
  Tensor q = by_head(x, heads);
  return at::_fused_sdp_choice(q, q, q) != int64_t(sdp::SDPBackend::math);
}

Tensor fused(
    const Tensor& x, int64_t heads, const Tensor& in_weight, const Tensor& in_bias, const Tensor& out_weight,
    const Tensor& out_bias) {
  auto packed = at::linear(x, in_weight, in_bias).chunk(PACKED, -1); // lives until the end
  Tensor mixed = at::scaled_dot_product_attention(
      by_head(packed[0], heads), by_head(packed[1], heads), by_head(packed[2], heads));
  return at::linear(mixed.transpose(1, 2).reshape(x.sizes()), out_weight, out_bias);
}

Two attention(
    const Tensor& query, const Tensor& key, const Tensor& value, int64_t width, int64_t heads, const Tensor& in_weight,
    const Tensor& in_bias, const Tensor& out_weight, const Tensor& out_bias, const OptionalTensor& mask,
    bool need_weights, bool average, std::optional<int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3 && query.size(2) == width, "expected a query of (batch, length, ", width, ")");
  TORCH_CHECK(key.sizes() == query.sizes() && value.sizes() == query.sizes(), "expected equal shapes of query, key and value");
  TORCH_CHECK(width % heads == 0, "`embed_dim` must divide evenly by `num_heads`");
  bool itself = query.is_same(key) && key.is_same(value);
  if (query.numel() == 0) return {at::empty_like(query), Tensor()};
  if (itself && !need_weights && !mask && takes_fused(query, heads))
    return {fused(query, heads, in_weight, in_bias, out_weight, out_bias), Tensor()};
  Tensor packed = at::native::qkv_projection(query, key, value, width, in_weight);
  auto [q, k, v] = at::_transform_bias_rescale_qkv(packed, in_bias, heads);
  packed = Tensor();
  Tensor weights = at::native::bmm_nt(q, k);
  weights = at::native::masked_softmax(weights, mask, query, mask_type);
  Tensor mixed = at::native::bmm_nn(q, weights, v); // into the memory of q
  if (!need_weights) weights = Tensor();
  Tensor out = at::native::transform0213_gemm_nt_bias(mixed, out_weight, out_bias, query);
  if (need_weights && average) weights = weights.sum(1).div_(heads);
  return {out, weights};
}

// gelu and relu are parts of the product's kernel.
Tensor feed_forward(
    const Tensor& x, const Tensor& weight1, const Tensor& bias1, const Tensor& weight2, const Tensor& bias2, bool gelu) {
  Tensor inner = at::_addmm_activation(bias1, x.flatten(0, 1), weight1.t(), 1, 1, gelu);
  return at::addmm(bias2, inner, weight2.t()).view(x.sizes());
}

Tensor encoder_layer(
    const Tensor& source, int64_t width, int64_t heads, const Tensor& in_weight, const Tensor& in_bias,
    const Tensor& out_weight, const Tensor& out_bias, bool gelu, bool norm_first, double epsilon,
    const Tensor& norm_weight1, const Tensor& norm_bias1, const Tensor& norm_weight2, const Tensor& norm_bias2,
    const Tensor& weight1, const Tensor& bias1, const Tensor& weight2, const Tensor& bias2, const OptionalTensor& mask,
    std::optional<int64_t> mask_type) {
  if (source.numel() == 0) return source.clone();
  auto norm1 = [&](const Tensor& x) { return at::layer_norm(x, {width}, norm_weight1, norm_bias1, epsilon); };
  auto norm2 = [&](const Tensor& x) { return at::layer_norm(x, {width}, norm_weight2, norm_bias2, epsilon); };
  Tensor x = norm_first ? norm1(source) : source;
  x = std::get<0>(at::_native_multi_head_attention(
      x, x, x, width, heads, in_weight, in_bias, out_weight, out_bias, mask, false, true, mask_type));
  x.add_(source);
  if (!norm_first) x = norm1(x);
  Tensor before = x;
  if (norm_first) x = norm2(x);
  x = feed_forward(x, weight1, bias1, weight2, bias2, gelu);
  x.add_(before);
  return norm_first ? x : norm2(x);
}

} // namespace

VIRTUAL_KERNELS(kernels) {
  kernels.impl("_native_multi_head_attention", TORCH_FN(attention));
  kernels.impl("_transformer_encoder_layer_fwd", TORCH_FN(encoder_layer));
}

} // namespace unstall
