// copy_ in all directions, as ATen/native/cuda/Copy.cu does it: which copies it makes, through which temporaries.
#include "asserts.h"
#include "kernels.h"
#include "operators.h"
#include "waits.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/_local_scalar_dense_native.h>

#include <cstring>
#include <unordered_map>

namespace unstall {
namespace {

// Moves the values, now or at each replay; what is logged of a copy is decided elsewhere.
void move_values(const Tensor& to, const Tensor& from) {
  int device = (to.is_cuda() ? to : from).get_device();
  bool skips = settings().skip, few = to.is_cpu() || to.numel() <= MOST_KNOWN;
  Known reads = skips ? known_of(from) : nullptr, writes = skips ? known_of(to) : nullptr;
  auto move = [=, on_device = to.is_cuda(), whole = covers_storage(to), to = to_cpu(to), from = to_cpu(from)] {
    const Origin origin = skips && !few ? Origin::MISSING : reads ? *reads : Origin::COMPUTED;
    const bool missing = origin == Origin::MISSING;
    if (writes) was_written(writes, whole, origin);
    if (missing && on_device) return;
    if (origin != Origin::COMPUTED && !on_device) warn_unknown();
    computed([&] { missing ? to.zero_() : to.copy_(from); });
  };
  if (capturing_here(device)) keep(device, move);
  else move();
}

bool as_one_run(const Tensor& to, const Tensor& from) {
  if (to.sizes() != from.sizes()) return false;
  if (to.is_contiguous() && from.is_contiguous()) return true;
  return to.is_non_overlapping_and_dense() && from.is_non_overlapping_and_dense() && to.strides() == from.strides();
}

bool plain_bytes(const Tensor& to, const Tensor& from) {
  return to.scalar_type() == from.scalar_type() && to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg() &&
      as_one_run(to, from);
}

// A hash in four lanes, which the CPU mixes side by side: fast beside the copy of the same bytes.
uint64_t hash_of(const uint8_t* bytes, size_t count) {
  constexpr uint64_t PRIME = 0x9e3779b97f4a7c15;
  uint64_t lanes[4] = {count, count ^ PRIME, count + PRIME, ~count};
  auto mix = [](uint64_t& lane, uint64_t word) {
    lane = (lane ^ word) * PRIME;
    lane ^= lane >> 29;
  };
  size_t at = 0;
  for (; at + 32 <= count; at += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes + at, 32);
    for (int i = 0; i < 4; i++) mix(lanes[i], words[i]);
  }
  for (int lane = 0; at < count; at += 8, lane++) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min<size_t>(8, count - at));
    mix(lanes[lane], word);
  }
  uint64_t whole = 0;
  for (uint64_t lane : lanes) mix(whole, lane);
  return whole;
}

// Returns a number for the bytes of a tensor on the host. Equal bytes have equal numbers; 0 stands for bytes that were
// not computed. The tensor must have no gaps.
int32_t content_of(const Tensor& from) {
  if (!logging() || !from.numel() || (settings().skip && !known(from))) return 0;
  uint64_t hash = computed([&] { return hash_of(static_cast<const uint8_t*>(from.const_data_ptr()), from.nbytes()); });
  static Lock lock;
  static std::unordered_map<uint64_t, int32_t> numbers;
  std::lock_guard guard(lock);
  return numbers.try_emplace(hash, int32_t(numbers.size()) + 1).first->second;
}

void log_copy(const Tensor& to, const Tensor& from, int device, int peer, int flags) {
  Use uses[2] = {use_of(from, false), use_of(to, true)};
  write({.code = Code::COPY, .device = device, .stream = current_stream(device), .a = int64_t(to.nbytes()), .b = peer,
         .flags = uint8_t(flags), .content = from.is_cpu() ? content_of(from) : 0, .uses = uses, .use_count = 2});
}

void on_one_device(const Tensor& to, const Tensor& from) {
  int device = to.get_device();
  if (plain_bytes(to, from)) {
    move_values(to, from);
    if (to.data_ptr() != from.data_ptr()) log_copy(to, from, device, -1, D2D | NON_BLOCKING);
    return;
  }
  static const OpName name("aten::copy_");
  Launch launch(name, device);
  launch.input(to, true);
  launch.input(from);
  move_values(to, from);
  launch.output(to);
  launch.log();
}

// Between devices: the source waits until the destination may be written, the destination waits for the copy.
void between_devices(const Tensor& to, const Tensor& from) {
  int source = from.get_device(), destination = to.get_device();
  int64_t ready = new_event(), done = new_event();
  record_event(ready, destination, current_stream(destination));
  wait_event(ready, source, current_stream(source));
  if (plain_bytes(to, from)) {
    move_values(to, from);
    log_copy(to, from, source, destination, PEER | NON_BLOCKING);
  } else {
    OnDevice on_source(source);
    Tensor packed = from.to(to.scalar_type()).expand(to.sizes()).contiguous();
    Tensor arrived = to.is_contiguous() ? to : at::empty_like(to, c10::MemoryFormat::Contiguous);
    move_values(arrived, packed);
    log_copy(arrived, packed, source, destination, PEER | NON_BLOCKING);
    if (!arrived.is_same(to)) on_one_device(to, arrived);
  }
  record_event(done, source, current_stream(source));
  wait_event(done, destination, current_stream(destination));
}

void between_host_and_device(const Tensor& to, const Tensor& from, bool non_blocking) {
  if (!plain_bytes(to, from)) {
    // A copy that does not block converts types on the device; a blocking one on the host.
    bool on_device = non_blocking;
    Tensor packed, arrived;
    if (from.is_cuda() == on_device) {
      arrived = to.is_contiguous() ? to : at::empty_like(to, c10::MemoryFormat::Contiguous);
      packed = from.to(to.scalar_type()).expand(to.sizes()).contiguous();
    } else {
      bool direct = to.is_contiguous() && to.scalar_type() == from.scalar_type();
      arrived = direct ? to : at::empty_like(to, to.options().dtype(from.scalar_type()), c10::MemoryFormat::Contiguous);
      packed = from.expand(to.sizes()).contiguous();
    }
    arrived._set_conj(to.is_conj());
    packed._set_conj(from.is_conj());
    arrived._set_neg(to.is_neg());
    packed._set_neg(from.is_neg());
    between_host_and_device(arrived, packed, non_blocking);
    if (!arrived.is_same(to)) to.copy_(arrived, non_blocking);
    return;
  }
  const Tensor& host = to.is_cuda() ? from : to;
  int device = (to.is_cuda() ? to : from).get_device();
  bool pinned = is_pinned(host.storage().data());
  if (!non_blocking || (to.is_cpu() && !pinned)) check_finished(device);
  move_values(to, from);
  if (non_blocking && pinned) copy_started(device, current_stream(device));
  log_copy(to, from, device, -1, (to.is_cuda() ? H2D : D2H) | (pinned ? PINNED : 0) | (non_blocking ? NON_BLOCKING : 0));
  if (!non_blocking) sync_stream(device, current_stream(device));
}

// Whether the driver stages the bytes of a copy that does not block, which waits: pageable memory is copied, of the
// program's or of a temporary, as between_host_and_device makes one.
bool is_staged(const Tensor& to, const Tensor& from) {
  const Tensor& host = to.is_cuda() ? from : to;
  return !(plain_bytes(to, from) || host.is_contiguous()) || !is_pinned(host.storage().data());
}

WaitKind kind_of(const Tensor& to, const Tensor& from) {
  if (!to.is_cuda()) return WaitKind::DOWNLOAD;
  return is_pinned(from.storage().data()) ? WaitKind::PINNED_UPLOAD : WaitKind::UPLOAD;
}

void with_host(const Tensor& to, const Tensor& from, bool non_blocking) {
  auto copy = [&] { between_host_and_device(to, from, non_blocking); };
  if (non_blocking && !is_staged(to, from)) return copy();
  auto bytes = int64_t((to.is_cuda() ? from : to).nbytes());
  waiting(AWait{kind_of(to, from), bytes, non_blocking, !non_blocking}, copy);
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  if (!at::is_expandable_to(source.sizes(), self.sizes())) move_values(self, source); // which raises
  Tensor from = source.sizes() == self.sizes() ? source : source.expand(self.sizes());
  if (self.numel() == 0) return self;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_usable((self.is_cuda() ? self : from).get_device());
  if (!self.is_cuda() || !from.is_cuda()) with_host(self, from, non_blocking);
  else if (self.get_device() == from.get_device()) on_one_device(self, from);
  else between_devices(self, from);
  return self;
}

Tensor copy_from(const Tensor& self, const Tensor& to, bool non_blocking) {
  Tensor destination = to;
  return copy_(destination, self, non_blocking);
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

at::Scalar local_scalar(const Tensor& self) {
  Use value = use_of(self, false);
  auto bytes = int64_t(self.itemsize());
  waiting(AWait{WaitKind::VALUE, bytes, false, true}, [&] { log_read(self.get_device(), bytes, &value); });
  if (settings().skip && !known(self)) {
    warn_unknown();
    if (origin_of(self) == Origin::MISSING)
      return at::native::_local_scalar_dense_cpu(at::zeros({}, self.options().device(at::kCPU)));
  }
  return computed([&] { return at::native::_local_scalar_dense_cpu(to_cpu(self)); });
}

} // namespace

VIRTUAL_KERNELS(kernels) {
  kernels.impl("copy_", TORCH_FN(copy_));
  kernels.impl("_copy_from", TORCH_FN(copy_from));
  kernels.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  kernels.impl("_local_scalar_dense", TORCH_FN(local_scalar));
}

} // namespace unstall
