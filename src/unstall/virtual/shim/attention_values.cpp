#include "attention_values.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <limits>

namespace unstall {
namespace {

using at::Tensor;

double scale_of(const Attention& a) {
  return a.scale ? *a.scale : 1.0 / std::sqrt(double(a.q.size(-1)));
}

// The flash kernel of the CPU gives what a program without a GPU gets; it knows neither dropout nor value heads of
// another size.
bool can_flash(const Attention& a) {
  return a.dropout == 0 && a.q.size(-1) == a.v.size(-1) && a.q.numel() && a.k.numel() && a.q.stride(-1) == 1 &&
      a.k.stride(-1) == 1 && a.v.stride(-1) == 1 && !(a.mask && a.causal);
}

int64_t group(const Attention& a) {
  return a.q.size(1) / a.k.size(1);
}

Tensor each_head(const Tensor& kv, int64_t group) {
  return group == 1 ? kv : kv.repeat_interleave(group, 1);
}

Tensor sum_of_group(const Tensor& grad, int64_t group) {
  if (group == 1) return grad;
  return grad.unflatten(1, {grad.size(1) / group, group}).sum(2);
}

at::ScalarType wide(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor scores_of(const Attention& a, const Tensor& q, const Tensor& k) {
  Tensor scores = at::matmul(q, k.transpose(-2, -1)) * scale_of(a);
  if (a.mask)
    scores = a.mask->scalar_type() == at::kBool
        ? scores.masked_fill(a.mask->logical_not(), -std::numeric_limits<double>::infinity())
        : scores + *a.mask;
  if (a.causal) {
    Tensor seen = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  return scores.to(wide(q));
}

// What each probability is multiplied by: 0 or 1 / (1 - dropout).
std::optional<Tensor> kept(const Attention& a, const Tensor& like) {
  if (a.dropout == 0) return std::nullopt;
  if (a.dropout >= 1) return at::zeros_like(like);
  auto generator = at::detail::createCPUGenerator(a.seed);
  return at::empty_like(like).bernoulli_(1 - a.dropout, generator).div_(1 - a.dropout);
}

// A row that sees no key has no probabilities: zeros, as CUDA's kernels give, not NaN.
Tensor probabilities(const Tensor& scores, const Tensor& logsumexp) {
  return at::exp(scores - logsumexp.unsqueeze(-1)).nan_to_num(0.0);
}

// Strides as the CPU's forward kernel gives them: its backward reads them so.
Tensor as_flash_gives(const Tensor& logsumexp) {
  return logsumexp.transpose(1, 2).contiguous().transpose(1, 2);
}

} // namespace

AttentionOutput attend(const Attention& a) {
  Tensor k = each_head(a.k, group(a)), v = each_head(a.v, group(a));
  if (can_flash(a)) {
    auto [out, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(a.q, k, v, 0.0, a.causal, a.mask, a.scale);
    return {out, logsumexp};
  }
  auto type = wide(a.q);
  Tensor scores = scores_of(a, a.q.to(type), k.to(type));
  Tensor logsumexp = scores.logsumexp(-1);
  Tensor weights = probabilities(scores, logsumexp);
  if (auto keep = kept(a, weights)) weights = weights * *keep;
  return {at::matmul(weights, v.to(type)).to(a.q.scalar_type()), logsumexp};
}

AttentionGradients attend_backward(
    const Attention& a, const AttentionOutput& forward, const Tensor& grad, bool wants_mask) {
  int64_t heads = group(a);
  Tensor k = each_head(a.k, heads), v = each_head(a.v, heads);
  if (can_flash(a) && !wants_mask) {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad, a.q, k, v, forward.out, as_flash_gives(forward.logsumexp), 0.0, a.causal, a.mask, a.scale);
    return {dq, sum_of_group(dk, heads), sum_of_group(dv, heads), {}};
  }
  auto type = wide(a.q);
  Tensor wide_q = a.q.to(type), wide_k = k.to(type), wide_grad = grad.to(type);
  Tensor scores = scores_of(a, wide_q, wide_k);
  // Of these very scores: those of another kernel are rounded otherwise, and exp() makes much of that.
  Tensor weights = probabilities(scores, scores.logsumexp(-1));
  Tensor grad_weights = at::matmul(wide_grad, v.to(type).transpose(-2, -1));
  auto keep = kept(a, weights);
  if (keep) grad_weights = grad_weights * *keep;
  Tensor grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, true));
  AttentionGradients gradients;
  if (wants_mask && a.mask) gradients.mask = at::sum_to(grad_scores, a.mask->sizes()).to(a.mask->scalar_type());
  double scale = scale_of(a);
  Tensor dropped = keep ? weights * *keep : weights;
  gradients.q = (at::matmul(grad_scores, wide_k) * scale).to(a.q.scalar_type());
  gradients.k = sum_of_group(at::matmul(grad_scores.transpose(-2, -1), wide_q) * scale, heads).to(a.k.scalar_type());
  gradients.v = sum_of_group(at::matmul(dropped.transpose(-2, -1), wide_grad), heads).to(a.v.scalar_type());
  return gradients;
}

} // namespace unstall
