// Shared by recurrent.cpp and recurrent_weights.cpp.
#pragma once
#include <ATen/core/Tensor.h>

namespace unstall {

// cudnnRNNMode_t
constexpr int64_t RNN_RELU = 0, RNN_TANH = 1, LSTM = 2, GRU = 3;

// Elements of cuDNN's one buffer for all weights: two biases for each gate even if the layer has none.
int64_t flat_weights(at::TensorList weights, int64_t weights_of_layer, int64_t mode, int64_t hidden);

} // namespace unstall
