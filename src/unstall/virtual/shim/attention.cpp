// The attention kernels of CUDA: flash, memory-efficient and cuDNN's, each with the outputs that an H200 gave.
#include "substitutes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <limits>
#include <mutex>

namespace unstall {
namespace {

// softmax(q k^T scale + mask) v and its gradients, by kernels of the CPU.

// q: (batch, heads, queries, head); k and v may have fewer heads, each for several of q's. `mask` is added to the
// scores and broadcasts to (batch, heads, queries, keys). Scores are dropped with probability `dropout`; `seed` gives
// the same random numbers in the forward and the backward.
struct Attention {
  Tensor q, k, v;
  std::optional<Tensor> mask;
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;
  uint64_t seed = 0;
};

struct AttentionOutput {
  Tensor out;       // (batch, heads, queries, v's head)
  Tensor logsumexp; // (batch, heads, queries), float32 or float64
};

struct AttentionGradients {
  Tensor q, k, v, mask; // mask: only if wanted
};

double scale_of(const Attention& a) {
  return a.scale ? *a.scale : 1.0 / std::sqrt(double(a.q.size(-1)));
}

// The CPU's flash kernel computes what a program without a GPU gets. It has no dropout, and no value heads of another
// size.
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

// The strides of the CPU's forward kernel, which its backward expects.
Tensor as_flash_gives(const Tensor& logsumexp) {
  return logsumexp.transpose(1, 2).contiguous().transpose(1, 2);
}

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
  // From these scores: another kernel's logsumexp is rounded differently, which exp() would magnify.
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

// The kernels of CUDA: the values above in their outputs.

using FlashOutput = std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t, int64_t, Tensor, Tensor, Tensor>;

// Rows of a tile of the memory-efficient kernel: its logsumexp is padded to whole tiles, its bias to whole vectors.
constexpr int64_t EFFICIENT_ROWS = 32, BIAS_COLUMNS = 16;

int64_t padded(int64_t size, int64_t to) {
  return (size + to - 1) / to * to;
}

uint64_t draw_seed() {
  auto* generator = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  std::lock_guard guard(generator->mutex_);
  return generator->random64();
}

uint64_t seed_in(const Tensor& seed, double dropout) {
  return dropout == 0 ? 0 : uint64_t(seed.flatten()[0].to(at::kLong).item<int64_t>());
}

// (batch, heads, rows, size) as rows of heads lie in memory: (batch, rows, heads, size).
Tensor rows_first(const Tensor& like, int64_t heads, int64_t rows, int64_t size) {
  return at::empty({like.size(0), rows, heads, size}, like.options()).transpose(1, 2);
}

OptionalTensor given(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? tensor : std::nullopt;
}

FlashOutput flash(
    const Tensor& q, const Tensor& k, const Tensor& v, double dropout, bool causal, bool, std::optional<double> scale) {
  Attention attention{q, k, v, {}, dropout, causal, scale, dropout > 0 && !q.is_meta() ? draw_seed() : 0};
  Tensor out = at::empty_like(q.transpose(1, 2)).transpose(1, 2);
  Tensor logsumexp = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  Tensor state = at::empty({2}, q.options().dtype(at::kUInt64)), unused = at::empty({}, state.options());
  if (!q.is_meta()) {
    auto values = attend(attention);
    out.copy_(values.out);
    logsumexp.copy_(values.logsumexp);
    state.data_ptr<uint64_t>()[0] = attention.seed;
    state.data_ptr<uint64_t>()[1] = 0;
  }
  return {out, logsumexp, {}, {}, q.size(2), k.size(2), state, unused, at::empty({0}, q.options())};
}

Three flash_backward(
    const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& logsumexp,
    const Tensor&, const Tensor&, int64_t, int64_t, double dropout, bool causal, const Tensor& state, const Tensor&,
    std::optional<double> scale) {
  auto like = [](const Tensor& x) { return at::empty_like(x.transpose(1, 2)).transpose(1, 2); };
  Three results{like(q), like(k), like(v)};
  if (q.is_meta()) return results;
  Attention attention{q, k, v, {}, dropout, causal, scale, dropout > 0 ? state.data_ptr<uint64_t>()[0] : 0};
  auto gradients = attend_backward(attention, {out, logsumexp}, grad, false);
  std::get<0>(results).copy_(gradients.q);
  std::get<1>(results).copy_(gradients.k);
  std::get<2>(results).copy_(gradients.v);
  return results;
}

Four efficient(
    const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias, bool wants_logsumexp,
    double dropout, bool causal, std::optional<double> scale) {
  Attention attention{q, k, v, given(bias), dropout, causal, scale, dropout > 0 && !q.is_meta() ? draw_seed() : 0};
  Tensor out = rows_first(q, q.size(1), q.size(2), v.size(3));
  Tensor logsumexp = at::empty(
      {q.size(0), q.size(1), wants_logsumexp ? padded(q.size(2), EFFICIENT_ROWS) : 0}, q.options().dtype(at::kFloat));
  auto host = at::TensorOptions(at::kLong);
  Tensor seed = at::empty({}, host), offset = at::zeros({}, host);
  if (!q.is_meta()) {
    auto values = attend(attention);
    out.copy_(values.out);
    if (wants_logsumexp) {
      // The kernel's backward reads past the last row: infinity keeps that out of the sums.
      logsumexp.fill_(std::numeric_limits<float>::infinity());
      logsumexp.narrow(2, 0, q.size(2)).copy_(values.logsumexp);
    }
  }
  seed.fill_(int64_t(attention.seed));
  return {out, logsumexp, seed, offset};
}

Four efficient_backward(
    const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, const Tensor& out,
    const Tensor& logsumexp, const Tensor& seed, const Tensor&, double dropout, std::array<bool, 4> wanted,
    bool causal, std::optional<double> scale) {
  if (!grad.defined()) return {};
  bool wants_bias = bias.defined() && wanted[3];
  Four results{
      rows_first(q, q.size(1), q.size(2), q.size(3)), rows_first(k, k.size(1), k.size(2), k.size(3)),
      rows_first(v, v.size(1), v.size(2), v.size(3)), {}};
  if (wants_bias) {
    auto sizes = bias.sizes().vec();
    sizes.back() = padded(sizes.back(), BIAS_COLUMNS);
    std::get<3>(results) = at::empty(sizes, bias.options()).narrow(-1, 0, bias.size(-1));
  }
  if (q.is_meta()) return results;
  Attention attention{q, k, v, given(bias), dropout, causal, scale, seed_in(seed, dropout)};
  auto gradients = attend_backward(attention, {out, logsumexp.narrow(2, 0, q.size(2))}, grad, wants_bias);
  std::get<0>(results).copy_(gradients.q);
  std::get<1>(results).copy_(gradients.k);
  std::get<2>(results).copy_(gradients.v);
  if (wants_bias) std::get<3>(results).copy_(gradients.mask);
  return results;
}

FlashOutput cudnn(
    const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias, bool wants_logsumexp,
    double dropout, bool causal, bool, std::optional<double> scale) {
  Attention attention{q, k, v, given(bias), dropout, causal, scale, dropout > 0 && !q.is_meta() ? draw_seed() : 0};
  bool as_query = v.size(3) == q.size(3);
  Tensor out = as_query ? at::empty_like(q) : rows_first(q, q.size(1), q.size(2), v.size(3));
  Tensor logsumexp, seed = at::empty({}, q.options().dtype(at::kLong)), offset = at::empty_like(seed);
  if (wants_logsumexp) logsumexp = at::empty({q.size(0), q.size(1), q.size(2), 1}, q.options().dtype(at::kFloat));
  if (!q.is_meta()) {
    auto values = attend(attention);
    out.copy_(values.out);
    if (wants_logsumexp) logsumexp.copy_(values.logsumexp.unsqueeze(-1));
    seed.fill_(int64_t(attention.seed));
    offset.zero_();
  }
  return {out, logsumexp, {}, {}, q.size(2), k.size(2), seed, offset, {}};
}

Three cudnn_backward(
    const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& logsumexp,
    const Tensor& seed, const Tensor&, const Tensor& bias, const Tensor&, const Tensor&, int64_t, int64_t,
    double dropout, bool causal, std::optional<double> scale) {
  Three results{at::empty_like(q), at::empty_like(k), at::empty_like(v)};
  if (q.is_meta()) return results;
  Attention attention{q, k, v, given(bias), dropout, causal, scale, seed_in(seed, dropout)};
  auto gradients = attend_backward(attention, {out, logsumexp.squeeze(-1)}, grad, false);
  std::get<0>(results).copy_(gradients.q);
  std::get<1>(results).copy_(gradients.k);
  std::get<2>(results).copy_(gradients.v);
  return results;
}

} // namespace

SUBSTITUTES(list) {
  list.add("_scaled_dot_product_flash_attention", &flash);
  list.add("_scaled_dot_product_flash_attention_backward", &flash_backward);
  list.add("_scaled_dot_product_efficient_attention", &efficient, {2, 3});
  list.add("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
  list.add("_scaled_dot_product_cudnn_attention", &cudnn);
  list.add("_scaled_dot_product_cudnn_attention_backward", &cudnn_backward);
}

} // namespace unstall
