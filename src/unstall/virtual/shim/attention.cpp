// The attention kernels of CUDA: flash, memory-efficient and cuDNN's, each with the outputs that an H200 gave.
#include "attention_values.h"
#include "substitutes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include <mutex>

namespace unstall {
namespace {

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
      // What stands behind the last row is read by the kernel's backward and must not count.
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
