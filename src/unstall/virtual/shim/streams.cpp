#include "asserts.h"
#include "devices.h"
#include "graphs.h"
#include "host_uses.h"
#include "log.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace unstall {
namespace {

thread_local int device_now = 0;
thread_local std::array<int64_t, MOST_DEVICES> streams_now{};

// c10/cuda/CUDAStream.cpp: the low bit says that a pool made it, four bits say which, the rest is its place there.
constexpr int POOLS = 4, IN_POOL = 32, TYPE_BITS = 4;
std::array<std::array<std::atomic<uint32_t>, POOLS>, MOST_DEVICES> taken{};
std::atomic<int64_t> events{0};

} // namespace

void raise_cuda_error(int code, const char* text) {
  throw c10::AcceleratorError({__func__, __FILE__, uint32_t(__LINE__)}, code, std::string("CUDA error: ") + text);
}

Settings& settings() {
  static Settings settings;
  return settings;
}

int current_device() {
  return device_now;
}

int device_number(int device) {
  if (device < 0) return device_now;
  if (device >= settings().devices)
    raise_cuda_error(101, "invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?");
  return device;
}

int device_number(c10::Device device) {
  return device_number(int(device.index()));
}

void set_current_device(int device) {
  device_now = device;
}

int64_t current_stream(int device) {
  return streams_now[size_t(device)];
}

void set_current_stream(int device, int64_t stream) {
  streams_now[size_t(device)] = stream;
}

int64_t new_stream(int device, int priority) {
  TORCH_CHECK(priority <= 0, "Expected cuda stream priority to be less than or equal to 0, got ", priority);
  int pool = std::min(-priority, POOLS - 1);
  int64_t place = taken[size_t(device)][size_t(pool)]++ % IN_POOL;
  return place << (TYPE_BITS + 1) | int64_t(pool + 1) << 1 | 1;
}

int64_t new_event() {
  return ++events;
}

void record_event(int64_t event, int device, int64_t stream) {
  check_usable(device);
  if (failed(device)) recorded_after_failure(event, device);
  write({.code = Code::EVENT_RECORD, .device = device, .stream = stream, .a = event});
  recorded_in_capture(event, device, stream);
}

void wait_event(int64_t event, int device, int64_t stream) {
  check_usable(device);
  write({.code = Code::EVENT_WAIT, .device = device, .stream = stream, .a = event});
  waited_in_capture(event, device, stream);
}

void sync_event(int64_t event) {
  if (refused_in_capture(event)) raise_cuda_error(900, "operation not permitted when stream is capturing");
  write({.code = Code::SYNC_EVENT, .device = current_device(), .a = event});
  check_event(event);
}

void sync_stream(int device, int64_t stream) {
  refuse_in_capture(device, stream);
  write({.code = Code::SYNC_STREAM, .device = device, .stream = stream});
  if (copies_may_run.load(std::memory_order_relaxed)) stream_finished(device, stream);
  check_finished(device);
}

void sync_device(int device) {
  refuse_in_capture(device, ALL_STREAMS);
  write({.code = Code::SYNC_DEVICE, .device = device});
  if (copies_may_run.load(std::memory_order_relaxed)) device_finished(device);
  check_finished(device);
}

} // namespace unstall
