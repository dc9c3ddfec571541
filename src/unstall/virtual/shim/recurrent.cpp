// cuDNN's recurrent layers and the fused cells. The CPU's layers, which have no flattened weights, compute the values.
#include "recurrent.h"
#include "substitutes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <mutex>

namespace unstall {
namespace {

using at::TensorList;

struct Layers {
  int64_t mode, hidden, projected, layers, weights_of_layer;
  bool batch_first, bidirectional, train;
  double dropout;
  IntArrayRef batch_sizes;

  bool is_lstm() const { return mode == LSTM; }
  bool has_biases() const { return weights_of_layer >= 4; }
  int64_t directions() const { return bidirectional ? 2 : 1; }
};

// Dropout between layers uses the default generator: seeded alike in the forward and the backward.
class Seeded {
 public:
  explicit Seeded(uint64_t seed)
      : generator_(at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator())) {
    std::lock_guard guard(generator_->mutex_);
    engine_ = generator_->engine();
    generator_->set_current_seed(seed);
  }
  ~Seeded() {
    std::lock_guard guard(generator_->mutex_);
    generator_->set_engine(engine_);
  }
  Seeded(const Seeded&) = delete;
  Seeded& operator=(const Seeded&) = delete;

 private:
  at::CPUGeneratorImpl* generator_;
  at::mt19937 engine_;
};

uint64_t draw_seed() {
  auto* generator = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  std::lock_guard guard(generator->mutex_);
  return generator->random64();
}

// (output, hy) or (output, hy, cy)
std::vector<Tensor> run(const Layers& l, const Tensor& input, TensorList weights, const Tensor& hx, const OptionalTensor& cx) {
  std::vector<Tensor> state{hx};
  if (l.is_lstm()) state.push_back(*cx);
  if (!l.batch_sizes.empty()) {
    Tensor sizes = at::tensor(l.batch_sizes, at::TensorOptions(at::kLong));
    auto call = [&](auto layer) {
      auto [out, hy] = layer(
          input, sizes, hx, weights, l.has_biases(), l.layers, l.dropout, l.train, l.bidirectional);
      return std::vector<Tensor>{out, hy};
    };
    using Data = std::tuple<Tensor, Tensor> (*)(
        const Tensor&, const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool);
    if (l.mode == GRU) return call(static_cast<Data>(&at::gru));
    if (l.mode == RNN_TANH) return call(static_cast<Data>(&at::rnn_tanh));
    if (l.mode == RNN_RELU) return call(static_cast<Data>(&at::rnn_relu));
    auto [out, hy, cy] =
        at::lstm(input, sizes, state, weights, l.has_biases(), l.layers, l.dropout, l.train, l.bidirectional);
    return {out, hy, cy};
  }
  auto call = [&](auto layer) {
    auto [out, hy] = layer(
        input, hx, weights, l.has_biases(), l.layers, l.dropout, l.train, l.bidirectional, l.batch_first);
    return std::vector<Tensor>{out, hy};
  };
  using Input = std::tuple<Tensor, Tensor> (*)(
      const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool, bool);
  if (l.mode == GRU) return call(static_cast<Input>(&at::gru));
  if (l.mode == RNN_TANH) return call(static_cast<Input>(&at::rnn_tanh));
  if (l.mode == RNN_RELU) return call(static_cast<Input>(&at::rnn_relu));
  auto [out, hy, cy] = at::lstm(
      input, state, weights, l.has_biases(), l.layers, l.dropout, l.train, l.bidirectional, l.batch_first);
  return {out, hy, cy};
}

// The bytes that cuDNN 9.19 requested on an H200, to within the 512 bytes that the allocator rounds to: the gates of
// each step, the outputs between layers, and the dropout mask.
int64_t reserve_bytes(const Layers& l, const Tensor& input) {
  int64_t steps = l.batch_sizes.empty() ? input.size(0) * input.size(1) : input.size(0);
  int64_t kept_of_step = l.is_lstm() ? 5 : l.mode == GRU ? 6 : 1;
  if (l.projected) kept_of_step++;
  int64_t unit = steps * l.hidden * input.element_size();
  int64_t gates = l.layers * l.directions() * kept_of_step * unit;
  int64_t between = (l.layers - 1) * l.directions() * unit;
  int64_t masks = l.dropout > 0 ? (l.layers - 1) * l.directions() * steps * l.hidden / 8 : 0;
  return (gates + between + masks + steps * l.projected * input.element_size() + 256 + 31) / 32 * 32;
}

Tensor leaf(const Tensor& tensor) {
  return tensor.detach().requires_grad_(true);
}

// What run() gives for parameters. The CPU's layers multiply, and so round, in another way if a view of a weight requires
// no gradient, as no view does below the key of views.
std::vector<Tensor> run_as_parameters(
    const Layers& l, const Tensor& input, TensorList weights, const Tensor& hx, const OptionalTensor& cx) {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  c10::impl::ForceDispatchKeyGuard with_views(keys.included_, keys.excluded_.remove(c10::DispatchKey::ADInplaceOrView));
  std::vector<Tensor> parameters;
  for (const Tensor& weight : weights) parameters.push_back(leaf(weight));
  return run(l, input, parameters, hx, cx);
}

Five forward(
    const Tensor& input, TensorList weights, int64_t weights_of_layer, const OptionalTensor& buffer, const Tensor& hx,
    const OptionalTensor& cx, int64_t mode, int64_t hidden, int64_t projected, int64_t layers, bool batch_first,
    double dropout, bool train, bool bidirectional, IntArrayRef batch_sizes, const OptionalTensor&) {
  Layers l{mode, hidden, projected, layers, weights_of_layer, batch_first, bidirectional, train, dropout, batch_sizes};
  int64_t numel = flat_weights(weights, weights_of_layer, mode, hidden);
  Tensor flat = buffer && buffer->defined() && buffer->numel() == numel ? *buffer : at::empty({numel}, input.options());
  Tensor reserve = at::empty({train ? reserve_bytes(l, input) : 0}, input.options().dtype(at::kByte));
  int64_t out_size = projected ? projected : hidden;
  auto sizes = input.sizes().vec();
  sizes.back() = out_size * l.directions();
  if (batch_first && batch_sizes.empty()) std::swap(sizes[0], sizes[1]);
  Tensor out = at::empty(sizes, input.options());
  if (batch_first && batch_sizes.empty()) out.transpose_(0, 1);
  Tensor hy = at::empty(hx.sizes(), hx.options());
  Tensor cy = cx && cx->defined() ? at::empty(cx->sizes(), cx->options()) : at::empty({0}, hx.options());
  if (input.is_meta()) return {out, hy, cy, reserve, flat};
  uint64_t seed = train && dropout > 0 ? draw_seed() : 0;
  Seeded seeded(seed);
  auto results = run_as_parameters(l, input, weights, hx, cx);
  out.copy_(results[0]);
  hy.copy_(results[1]);
  if (l.is_lstm()) cy.copy_(results[2]);
  if (train) std::memcpy(reserve.data_ptr(), &seed, sizeof seed);
  return {out, hy, cy, reserve, flat};
}

// Autograd as in a program, whatever state this thread is in: to differentiate the CPU's layers.
class Differentiating {
 public:
  Differentiating() : keys_(c10::default_included_set, c10::default_excluded_set), grad_(true) {}

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  at::AutoGradMode grad_;
};

std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>> backward(
    const Tensor& input, TensorList weights, int64_t weights_of_layer, const Tensor&, const Tensor& hx,
    const OptionalTensor& cx, const Tensor&, const OptionalTensor& grad_out, const OptionalTensor& grad_hy,
    const OptionalTensor& grad_cy, int64_t mode, int64_t hidden, int64_t projected, int64_t layers, bool batch_first,
    double dropout, bool train, bool bidirectional, IntArrayRef batch_sizes, const OptionalTensor&,
    const Tensor& reserve, std::array<bool, 4> wanted) {
  TORCH_CHECK(train, "cudnn RNN backward can only be called in training mode");
  Layers l{mode, hidden, projected, layers, weights_of_layer, batch_first, bidirectional, train, dropout, batch_sizes};
  bool lstm = l.is_lstm();
  bool turned = batch_first && batch_sizes.empty();
  Tensor grad_input = at::empty_like(turned ? input.transpose(0, 1).contiguous() : input);
  if (turned) grad_input.transpose_(0, 1);
  Tensor grad_hx = at::empty(hx.sizes(), hx.options()), grad_cx;
  if (lstm) grad_cx = at::empty(cx->sizes(), cx->options());
  std::vector<Tensor> grad_weights;
  for (const Tensor& weight : weights) grad_weights.push_back(at::empty(weight.sizes(), weight.options()));
  if (input.is_meta()) return {grad_input, grad_hx, grad_cx, wanted[3] ? grad_weights : std::vector<Tensor>{}};
  uint64_t seed = 0;
  std::memcpy(&seed, reserve.data_ptr(), sizeof seed);

  Differentiating differentiating;
  std::vector<Tensor> leaves{leaf(input), leaf(hx)};
  if (lstm) leaves.push_back(leaf(*cx));
  size_t first_weight = leaves.size();
  for (const Tensor& weight : weights) leaves.push_back(leaf(weight));
  std::vector<Tensor> results, outputs, grads;
  {
    Seeded seeded(seed);
    results = run(
        l, leaves[0], TensorList(leaves).slice(first_weight), leaves[1], lstm ? OptionalTensor(leaves[2]) : std::nullopt);
  }
  const OptionalTensor* given[] = {&grad_out, &grad_hy, &grad_cy};
  for (size_t i = 0; i < results.size(); i++) {
    if (!*given[i] || !(*given[i])->defined()) continue;
    outputs.push_back(results[i]);
    grads.push_back((*given[i])->detach());
  }
  auto gradients = torch::autograd::grad(outputs, leaves, grads, std::nullopt, false, true);
  at::NoGradGuard no_grad;
  auto take = [&](const Tensor& into, const Tensor& gradient) {
    if (gradient.defined()) into.copy_(gradient);
    else into.zero_();
  };
  take(grad_input, gradients[0]);
  take(grad_hx, gradients[1]);
  if (lstm) take(grad_cx, gradients[2]);
  for (size_t i = 0; i < grad_weights.size(); i++) take(grad_weights[i], gradients[first_weight + i]);
  return {grad_input, grad_hx, grad_cx, wanted[3] ? grad_weights : std::vector<Tensor>{}};
}

Tensor with_biases(const Tensor& a, const Tensor& b, const OptionalTensor& c, const OptionalTensor& d) {
  Tensor sum = a + b;
  if (c && c->defined()) sum = sum + *c;
  return d && d->defined() ? sum + *d : sum;
}

Three lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx, const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  auto gates = with_biases(input_gates, hidden_gates, input_bias, hidden_bias).chunk(4, 1);
  Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), out = gates[3].sigmoid();
  Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

Three lstm_cell_backward(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const Tensor& cx, const Tensor& cy,
    const Tensor& workspace, bool has_bias) {
  auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  Tensor tanh_cy = cy.tanh();
  Tensor grad_h = grad_hy && grad_hy->defined() ? *grad_hy : at::zeros_like(cy);
  Tensor grad_c = grad_h * out * (1 - tanh_cy * tanh_cy);
  if (grad_cy && grad_cy->defined()) grad_c = grad_c + *grad_cy;
  Tensor grad_gates = at::cat(
      {grad_c * cell * in * (1 - in), grad_c * cx * forget * (1 - forget), grad_c * in * (1 - cell * cell),
       grad_h * tanh_cy * out * (1 - out)},
      1);
  return {grad_gates, grad_c * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

Two gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx, const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  auto add = [](const Tensor& a, const OptionalTensor& b) { return b && b->defined() ? a + *b : a; };
  auto from_input = add(input_gates, input_bias).chunk(3, 1), from_hidden = add(hidden_gates, hidden_bias).chunk(3, 1);
  Tensor reset = (from_input[0] + from_hidden[0]).sigmoid(), update = (from_input[1] + from_hidden[1]).sigmoid();
  Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

Five gru_cell_backward(const Tensor& grad, const Tensor& workspace, bool has_bias) {
  auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3], &hidden_new = saved[4];
  Tensor grad_update = grad * (hx - fresh) * (1 - update) * update;
  Tensor grad_fresh = grad * (1 - update) * (1 - fresh * fresh);
  Tensor grad_reset = grad_fresh * hidden_new * (1 - reset) * reset;
  Tensor from_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  Tensor from_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  Tensor input_bias, hidden_bias;
  if (has_bias) {
    input_bias = from_input.sum(0);
    hidden_bias = from_hidden.sum(0);
  }
  return {from_input, from_hidden, grad * update, input_bias, hidden_bias};
}

} // namespace

SUBSTITUTES(list) {
  list.add("_cudnn_rnn", &forward);
  list.add("_cudnn_rnn_backward", &backward);
  list.add("_thnn_fused_lstm_cell", &lstm_cell);
  list.add("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  list.add("_thnn_fused_gru_cell", &gru_cell);
  list.add("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

} // namespace unstall
