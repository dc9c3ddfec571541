// softmax(q k^T scale + mask) v and its gradients, by kernels of the CPU.
#pragma once
#include <ATen/core/Tensor.h>

namespace unstall {

// q: (batch, heads, queries, head); k, v may have fewer heads, each for as many of q's. `mask` is added to the scores and
// broadcasts to (batch, heads, queries, keys). Where `seed` is given, scores are dropped with probability `dropout` by
// numbers that follow from it: the same in the backward.
struct Attention {
  at::Tensor q, k, v;
  std::optional<at::Tensor> mask;
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;
  uint64_t seed = 0;
};

struct AttentionOutput {
  at::Tensor out;       // (batch, heads, queries, v's head)
  at::Tensor logsumexp; // (batch, heads, queries), float32 or float64
};

struct AttentionGradients {
  at::Tensor q, k, v, mask; // mask: only where asked for
};

AttentionOutput attend(const Attention& attention);
AttentionGradients attend_backward(
    const Attention& attention, const AttentionOutput& forward, const at::Tensor& grad, bool wants_mask);

} // namespace unstall
