// Around cuDNN's recurrent kernel: which layers use it, its one buffer of weights, its dropout state.
#include "kernels.h"
#include "recurrent.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/RNN.h>

#include <mutex>
#include <unordered_map>

namespace unstall {

int64_t flat_weights(at::TensorList weights, int64_t weights_of_layer, int64_t mode, int64_t hidden) {
  int64_t numel = 0;
  for (const at::Tensor& weight : weights) numel += weight.numel();
  if (weights_of_layer >= 4) return numel;
  int64_t gates = mode == LSTM ? 4 : mode == GRU ? 3 : 1;
  return numel + int64_t(weights.size()) / weights_of_layer * 2 * gates * hidden;
}

namespace {

using at::TensorList;

// A state of cuDNN's generator for each of 132 multiprocessors' threads, as an H200 gave.
constexpr int64_t DROPOUT_STATE_BYTES = 6488064;

// Weights become views of one buffer, as cuDNN expects: matrices first, then biases.
Tensor flatten(
    TensorList weights, int64_t weights_of_layer, int64_t, int64_t mode, int64_t hidden, int64_t, int64_t, bool,
    bool) {
  TORCH_CHECK(!weights.empty(), "_cudnn_rnn_flatten_weight_: cannot flatten empty weight list");
  Tensor buffer = at::zeros({flat_weights(weights, weights_of_layer, mode, hidden)}, weights[0].options());
  int64_t at_element = 0;
  for (bool matrices : {true, false}) {
    for (const Tensor& weight : weights) {
      if ((weight.dim() > 1) != matrices) continue;
      Tensor place = buffer.narrow(0, at_element, weight.numel()).view_as(weight);
      at_element += weight.numel();
      place.copy_(weight);
      Tensor(weight).set_(place);
    }
  }
  return buffer;
}

Tensor dropout_state(
    double, bool, int64_t, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<at::Device> device, std::optional<bool>) {
  return at::empty(
      {DROPOUT_STATE_BYTES},
      at::TensorOptions().dtype(dtype.value_or(at::kByte)).layout(layout).device(device.value_or(at::Device(at::kCUDA))));
}

// One for each device, made anew after the program seeded its generator.
Tensor dropout_state_of(int device, double dropout) {
  struct State {
    Tensor buffer;
    uint64_t seed = 0;
  };
  static auto* states = new std::unordered_map<int, State>;
  static Lock lock;
  uint64_t seed = default_generator(device).current_seed();
  State state;
  {
    std::lock_guard guard(lock);
    state = (*states)[device];
  }
  if (state.buffer.defined() && state.seed == seed) return state.buffer;
  auto options = at::TensorOptions(at::kByte).device(at::Device(at::kCUDA, c10::DeviceIndex(device)));
  State made{at::_cudnn_init_dropout_state(dropout, true, int64_t(seed & 0x7fffffff), options), seed};
  state = made;
  {
    std::lock_guard guard(lock);
    std::swap((*states)[device], made); // the old state is freed, and so logged, without the lock
  }
  return state.buffer;
}

// The buffer if all weights are views of one, else none.
Tensor buffer_of(TensorList weights, int64_t weights_of_layer, int64_t mode, int64_t hidden) {
  Tensor all = at::empty({0}, weights[0].options()).set_(weights[0].storage());
  if (all.numel() < flat_weights(weights, weights_of_layer, mode, hidden)) return {};
  for (const Tensor& weight : weights)
    if (!weight.storage().is_alias_of(all.storage())) return {};
  return all;
}

struct Hidden {
  Tensor h, c;
};

struct Layer {
  int64_t mode;
  TensorList weights;
  bool biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;
};

std::tuple<Tensor, Hidden> run(const Layer& l, const Tensor& input, at::IntArrayRef batch_sizes, const Hidden& state) {
  int64_t hidden = l.mode == LSTM ? state.c.size(2) : state.h.size(2);
  int64_t projected = l.mode == LSTM && state.h.size(2) != hidden ? state.h.size(2) : 0;
  int64_t weights_of_layer = (l.biases ? 4 : 2) + (projected ? 1 : 0);
  Tensor buffer = buffer_of(l.weights, weights_of_layer, l.mode, hidden);
  if (!buffer.defined())
    TORCH_WARN(
        "RNN module weights are not part of single contiguous chunk of memory. This means they need to be compacted at "
        "every call, possibly greatly increasing memory usage. To compact weights again call flatten_parameters().");
  Tensor dropout;
  if (l.dropout > 0 && l.train) dropout = dropout_state_of(input.get_device(), l.dropout);
  auto [out, hy, cy, reserve, flat] = at::_cudnn_rnn(
      input, l.weights, weights_of_layer, buffer, state.h, state.c, l.mode, hidden, projected, l.layers, l.batch_first,
      l.dropout, l.train, l.bidirectional, batch_sizes, dropout);
  return {out, Hidden{hy, cy}};
}

void lstm(
    Tensor& out, Tensor& hy, Tensor& cy, const Tensor& input, TensorList hx, TensorList weights, bool biases,
    int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  auto [result, state] =
      run({LSTM, weights, biases, layers, dropout, train, bidirectional, batch_first}, input, {}, {hx[0], hx[1]});
  out = result;
  hy = state.h;
  cy = state.c;
}

std::vector<int64_t> on_host(const Tensor& batch_sizes) {
  Tensor sizes = batch_sizes.contiguous();
  return {sizes.data_ptr<int64_t>(), sizes.data_ptr<int64_t>() + sizes.numel()};
}

void lstm_packed(
    Tensor& out, Tensor& hy, Tensor& cy, const Tensor& data, const Tensor& batch_sizes, TensorList hx,
    TensorList weights, bool biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  auto [result, state] =
      run({LSTM, weights, biases, layers, dropout, train, bidirectional, false}, data, on_host(batch_sizes),
          {hx[0], hx[1]});
  out = result;
  hy = state.h;
  cy = state.c;
}

template <int64_t mode>
void one_state(
    Tensor& out, Tensor& hy, const Tensor& input, const Tensor& hx, TensorList weights, bool biases, int64_t layers,
    double dropout, bool train, bool bidirectional, bool batch_first) {
  auto [result, state] =
      run({mode, weights, biases, layers, dropout, train, bidirectional, batch_first}, input, {}, {hx, {}});
  out = result;
  hy = state.h;
}

template <int64_t mode>
void one_state_packed(
    Tensor& out, Tensor& hy, const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList weights,
    bool biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  auto [result, state] =
      run({mode, weights, biases, layers, dropout, train, bidirectional, false}, data, on_host(batch_sizes), {hx, {}});
  out = result;
  hy = state.h;
}

// torch's autocast kernel is only in its CUDA library.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> autocast_rnn(
    const Tensor& input, TensorList weights, int64_t weights_of_layer, const std::optional<Tensor>& buffer,
    const Tensor& hx, const std::optional<Tensor>& cx, int64_t mode, int64_t hidden, int64_t projected, int64_t layers,
    bool batch_first, double dropout, bool train, bool bidirectional, at::IntArrayRef batch_sizes,
    const std::optional<Tensor>& state) {
  c10::impl::ExcludeDispatchKeyGuard without(c10::DispatchKey::AutocastCUDA);
  auto type = at::autocast::get_autocast_dtype(at::kCUDA);
  auto cast = [&](const Tensor& x) { return at::autocast::cached_cast(type, x, at::kCUDA); };
  bool casts = weights[0].scalar_type() == at::kFloat;
  std::vector<Tensor> cast_weights;
  for (const Tensor& weight : weights) cast_weights.push_back(cast(weight));
  std::optional<Tensor> cast_cx = cx && cx->defined() ? std::optional(cast(*cx)) : cx;
  return at::_cudnn_rnn(
      cast(input), cast_weights, weights_of_layer, casts ? std::nullopt : buffer, cast(hx), cast_cx, mode, hidden,
      projected, layers, batch_first, dropout, train, bidirectional, batch_sizes, state);
}

} // namespace

VIRTUAL_KERNELS(kernels) {
  library("aten", c10::DispatchKey::AutocastCUDA).impl("_cudnn_rnn", TORCH_FN(autocast_rnn));
  kernels.impl("_cudnn_rnn_flatten_weight", TORCH_FN(flatten));
  kernels.impl("_cudnn_init_dropout_state", TORCH_FN(dropout_state));
  at::native::lstm_cudnn_stub.set_cuda_dispatch_ptr(&lstm);
  at::native::lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(&lstm_packed);
  at::native::gru_cudnn_stub.set_cuda_dispatch_ptr(&one_state<GRU>);
  at::native::gru_packed_cudnn_stub.set_cuda_dispatch_ptr(&one_state_packed<GRU>);
  at::native::rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&one_state<RNN_TANH>);
  at::native::rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(&one_state_packed<RNN_TANH>);
  at::native::rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&one_state<RNN_RELU>);
  at::native::rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(&one_state_packed<RNN_RELU>);
}

} // namespace unstall
