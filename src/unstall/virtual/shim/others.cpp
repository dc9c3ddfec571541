// Operators that only CUDA has, besides those of attention, convolution, normalization and recurrent layers.
#include "substitutes.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace unstall {
namespace {

// torch's own empty_like forgets strides of size 1 if there is no memory.
Tensor empty_like_with_strides(const Tensor& self) {
  bool dense = self.is_non_overlapping_and_dense();
  auto strides = dense ? self.strides().vec() : at::infer_dense_strides(self.sizes(), self.strides());
  return at::empty_strided(self.sizes(), strides, self.options());
}

// A mean or a sum holds the memory of the losses that it is made of. torch's function of shapes does not say so.
Tensor cross_entropy_of_two(
    const Tensor& self, const Tensor& target, const OptionalTensor& weight, int64_t reduction) {
  Tensor loss = at::binary_cross_entropy(self, target, weight, reduction);
  if (!loss.is_meta()) return loss;
  return empty_like_with_strides(self).resize_(loss.sizes());
}

Tensor cross_entropy_of_two_backward(
    const Tensor& gradient, const Tensor& self, const Tensor& target, const OptionalTensor& weight,
    int64_t reduction) {
  if (self.is_meta()) return empty_like_with_strides(self);
  return at::binary_cross_entropy_backward(gradient, self, target, weight, reduction);
}

Two fused_dropout(const Tensor& self, double keep, std::optional<at::Generator> generator) {
  Tensor mask = at::empty_like(self, self.options().dtype(at::kByte)).bernoulli_(keep, generator);
  return {self * mask / keep, mask};
}

Tensor masked_scale(const Tensor& self, const Tensor& mask, double scale) {
  return self * mask * scale;
}

// cuDNN's CTC loss supports the usual inputs of speech recognition.
bool cudnn_takes(const Tensor& log_probs, const Tensor& targets, int64_t blank) {
  return at::globalContext().userEnabledCuDNN() && blank == 0 && targets.dim() == 1 &&
      log_probs.scalar_type() == at::kFloat && targets.scalar_type() == at::kInt && log_probs.dim() == 3;
}

bool use_cudnn_ctc(
    const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
    int64_t blank) {
  if (!cudnn_takes(log_probs, targets, blank)) return false;
  for (int64_t length : input_lengths)
    if (length != log_probs.size(0)) return false;
  for (size_t i = 0; i < target_lengths.size(); i++)
    if (target_lengths[i] == 0 || target_lengths[i] > 256 || target_lengths[i] > input_lengths[i]) return false;
  return true;
}

std::vector<int64_t> numbers(const Tensor& tensor) {
  Tensor wide = tensor.to(at::kLong).contiguous();
  return {wide.data_ptr<int64_t>(), wide.data_ptr<int64_t>() + wide.numel()};
}

bool use_cudnn_ctc_tensor(
    const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
    int64_t blank) {
  return use_cudnn_ctc(log_probs, targets, numbers(input_lengths), numbers(target_lengths), blank);
}

Two with_gradient(
    const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
    int64_t blank, bool zero_infinity) {
  Tensor wide = targets.to(at::kLong);
  auto [loss, alpha] = at::_ctc_loss(log_probs, wide, input_lengths, target_lengths, blank, zero_infinity);
  Tensor gradient = at::_ctc_loss_backward(
      at::ones_like(loss), log_probs, wide, input_lengths, target_lengths, loss, alpha, blank, zero_infinity);
  return {loss, gradient};
}

Two cudnn_ctc(
    const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
    int64_t blank, bool, bool zero_infinity) {
  return with_gradient(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
}

Two cudnn_ctc_tensor(
    const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
    int64_t blank, bool, bool zero_infinity) {
  return with_gradient(
      log_probs, targets, numbers(input_lengths), numbers(target_lengths), blank, zero_infinity);
}

bool no_miopen(const Tensor&, const Tensor&, IntArrayRef, IntArrayRef, int64_t) {
  return false;
}

bool no_miopen_tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t) {
  return false;
}

// CUDA always returns the bag of each index, and the maxima only in mode max.
Four embedding_bag(
    const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool scale_by_frequency, int64_t mode,
    bool sparse, const OptionalTensor& per_sample, bool include_last, int64_t padding) {
  constexpr int64_t MAX = 2;
  auto [out, bag_of, bag_sizes, largest] = at::_embedding_bag(
      weight, indices, offsets, scale_by_frequency, mode, sparse, per_sample, include_last, padding);
  if (bag_of.numel() != indices.numel() && !indices.is_meta()) {
    Tensor starts = at::zeros({indices.size(0) + 1}, indices.options());
    starts.index_add_(0, offsets.to(indices.scalar_type()), at::ones_like(offsets).to(indices.scalar_type()));
    bag_of = starts.narrow(0, 0, indices.size(0)).cumsum(0).sub_(1).to(indices.scalar_type());
  }
  if (mode != MAX) largest = at::empty({0}, bag_sizes.options());
  return {out, bag_of, bag_sizes, largest};
}

// The CPU counts floating-point numbers only. Quotients of doubles are rounded down like those of integers.
Tensor histc(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  if (!at::isIntegralType(self.scalar_type(), false)) return at::histc(self, bins, min, max);
  return at::histc(self.to(at::kDouble), bins, min.to<int64_t>(), max.to<int64_t>()).to(self.scalar_type());
}

// Only the CPU uses the buffer: it is computed again for the backward.
Two log_sigmoid(const Tensor& self) {
  return {std::get<0>(at::log_sigmoid_forward(self)), at::empty({0}, self.options())};
}

Tensor log_sigmoid_backward(const Tensor& grad, const Tensor& self, const Tensor&) {
  return at::log_sigmoid_backward(grad, self, std::get<1>(at::log_sigmoid_forward(self)));
}

// nn.TransformerEncoder asks this before it makes nested tensors of a padded batch. No: the batch stays padded.
bool stays_padded(const Tensor&, const Tensor&) {
  TORCH_WARN_ONCE(
      "the virtual GPU computes padded batches of nn.TransformerEncoder as they are: at padded places its output has "
      "values, where a GPU's nested tensors give zeros");
  return false;
}

// cuSOLVER gives V as rows.
Three svd(const Tensor& a, bool full, bool wants_vectors, std::optional<c10::string_view> driver) {
  auto [u, s, vh] = at::_linalg_svd(a, full, wants_vectors, driver);
  return {u, s, vh.contiguous()};
}

constexpr int64_t BILINEAR = 0, ZEROS = 0;

Tensor cudnn_grid_sampler(const Tensor& self, const Tensor& grid) {
  return at::grid_sampler_2d(self, grid, BILINEAR, ZEROS, true);
}

Two cudnn_grid_sampler_backward(const Tensor& self, const Tensor& grid, const Tensor& grad) {
  return at::grid_sampler_2d_backward(grad, self, grid, BILINEAR, ZEROS, true, {true, true});
}

Tensor cudnn_affine_grid(const Tensor& theta, int64_t n, int64_t c, int64_t h, int64_t w) {
  return at::affine_grid_generator(theta, {n, c, h, w}, true);
}

// Products of halves, returned in the type in which they are accumulated.
Tensor mm_wide(const Tensor& a, const Tensor& b, at::ScalarType type) {
  return at::mm(a.to(at::kFloat), b.to(at::kFloat)).to(type);
}

Tensor bmm_wide(const Tensor& a, const Tensor& b, at::ScalarType type) {
  return at::bmm(a.to(at::kFloat), b.to(at::kFloat)).to(type);
}

Tensor addmm_wide(
    const Tensor& self, const Tensor& a, const Tensor& b, at::ScalarType type, const at::Scalar& beta,
    const at::Scalar& alpha) {
  return at::addmm(self.to(at::kFloat), a.to(at::kFloat), b.to(at::kFloat), beta, alpha).to(type);
}

Tensor baddbmm_wide(
    const Tensor& self, const Tensor& a, const Tensor& b, at::ScalarType type, const at::Scalar& beta,
    const at::Scalar& alpha) {
  return at::baddbmm(self.to(at::kFloat), a.to(at::kFloat), b.to(at::kFloat), beta, alpha).to(type);
}

// The words of _int_mm_out_cuda (ATen/native/cuda/Blas.cpp).
void check_int_mm(const Tensor& self, const Tensor& mat2) {
  TORCH_CHECK(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, "Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.size(0) > 16, "self.size(0) needs to be greater than 16, but got ", self.size(0));
  TORCH_CHECK(
      self.size(1) > 0 && self.size(1) % 8 == 0,
      "self.size(1) needs to be greater than 0 and a multiple of 8, but got ", self.size(1));
  TORCH_CHECK(
      self.size(1) == mat2.size(0), "self.size(1) needs to match mat2.size(0) but got ", self.size(1), " and ",
      mat2.size(0));
  TORCH_CHECK(
      mat2.size(1) > 0 && mat2.size(1) % 8 == 0,
      "mat2.size(1) needs to be greater than 0 and a multiple of 8, but got ", mat2.size(1));
}

Tensor int_mm(const Tensor& self, const Tensor& mat2) {
  check_int_mm(self, mat2);
  return at::_int_mm(self, mat2);
}

Tensor& int_mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  check_int_mm(self, mat2);
  return at::_int_mm_out(out, self, mat2);
}

// CUDA's kernels read halves and write float32, forward, and the other way around, backward. The CPU's refuse that.
template <Tensor (*compute)(const Tensor&, int64_t, bool)>
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return compute(half_to_float ? self.to(at::kFloat) : self, dim, false);
}

template <Tensor& (*compute)(Tensor&, const Tensor&, int64_t, bool)>
Tensor& softmax_out(const Tensor& self, int64_t dim, bool half_to_float, Tensor& out) {
  return compute(out, half_to_float ? self.to(at::kFloat) : self, dim, false);
}

template <Tensor (*compute)(const Tensor&, const Tensor&, int64_t, at::ScalarType)>
Tensor softmax_backward(const Tensor& gradient, const Tensor& output, int64_t dim, at::ScalarType input) {
  // CUDA's result is contiguous. That of torch's function of shapes is laid out as the gradient.
  return compute(gradient.contiguous(), output.contiguous(), dim, gradient.scalar_type()).to(input);
}

// CUDA's kernels of these know no channels_last (ReplicationPadding.cpp and MaxUnpooling.cu of ATen).
Tensor replication_pad2d(const Tensor& self, IntArrayRef padding) {
  return at::replication_pad2d(self.contiguous(), padding);
}

Tensor replication_pad3d(const Tensor& self, IntArrayRef padding) {
  return at::replication_pad3d(self.contiguous(), padding);
}

Tensor replication_pad2d_backward(const Tensor& gradient, const Tensor& self, IntArrayRef padding) {
  return at::replication_pad2d_backward(gradient.contiguous(), self.contiguous(), padding);
}

Tensor max_unpool2d(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  return at::max_unpool2d(self.contiguous(), indices.contiguous(), output_size);
}

} // namespace

SUBSTITUTES(list) {
  list.add("binary_cross_entropy", &cross_entropy_of_two);
  list.add("binary_cross_entropy_backward", &cross_entropy_of_two_backward);
  list.add("replication_pad2d", &replication_pad2d);
  list.add("replication_pad2d_backward", &replication_pad2d_backward);
  list.add("replication_pad3d", &replication_pad3d);
  list.add("max_unpool2d", &max_unpool2d);
  list.add("_fused_dropout", &fused_dropout);
  list.add("_masked_scale", &masked_scale);
  list.add("_use_cudnn_ctc_loss", &use_cudnn_ctc);
  list.add("_use_cudnn_ctc_loss.Tensor", &use_cudnn_ctc_tensor);
  list.add("_cudnn_ctc_loss", &cudnn_ctc);
  list.add("_cudnn_ctc_loss.Tensor", &cudnn_ctc_tensor);
  list.add("_use_miopen_ctc_loss", &no_miopen);
  list.add("_use_miopen_ctc_loss.Tensor", &no_miopen_tensor);
  list.add("_embedding_bag", &embedding_bag);
  list.add("_embedding_bag_forward_only", &embedding_bag);
  list.add("histc", &histc);
  list.add("log_sigmoid_forward", &log_sigmoid);
  list.add("log_sigmoid_backward", &log_sigmoid_backward);
  list.add("_nested_tensor_from_mask_left_aligned", &stays_padded);
  list.add("_linalg_svd", &svd);
  list.add("cudnn_grid_sampler", &cudnn_grid_sampler);
  list.add("cudnn_grid_sampler_backward", &cudnn_grid_sampler_backward);
  list.add("cudnn_affine_grid_generator", &cudnn_affine_grid);
  list.add("_softmax", &softmax<at::_softmax>);
  list.add("_softmax.out", &softmax_out<at::_softmax_out>);
  list.add("_softmax_backward_data", &softmax_backward<at::_softmax_backward_data>);
  list.add("_log_softmax", &softmax<at::_log_softmax>);
  list.add("_log_softmax.out", &softmax_out<at::_log_softmax_out>);
  list.add("_log_softmax_backward_data", &softmax_backward<at::_log_softmax_backward_data>);
  list.add("_int_mm", &int_mm);
  list.add("_int_mm.out", &int_mm_out);
  list.add("mm.dtype", &mm_wide);
  list.add("bmm.dtype", &bmm_wide);
  list.add("addmm.dtype", &addmm_wide);
  list.add("baddbmm.dtype", &baddbmm_wide);
}

} // namespace unstall
