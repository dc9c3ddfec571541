#include "devices.h"

#include "asserts.h"
#include "gpu_trace.h"
#include "log.h"
#include "memory.h"
#include "operators.h"
#include "simulator.h"
#include "waits.h"

#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace unstall {
namespace {

thread_local int device_now = 0;
thread_local std::array<int64_t, MOST_DEVICES> streams_now{};

// As in c10/cuda/CUDAStream.cpp: the low bit marks a stream of a pool, four bits are the pool, the rest is its place
// there.
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

void record_event(int64_t event, int device, int64_t stream, bool timed) {
  check_usable(device);
  if (failed(device)) recorded_after_failure(event, device);
  write({.code = Code::EVENT_RECORD, .device = device, .stream = stream, .a = event, .flags = timed ? TIMED : uint8_t(0)});
  recorded_in_capture(event, device, stream);
}

void wait_event(int64_t event, int device, int64_t stream) {
  check_usable(device);
  write({.code = Code::EVENT_WAIT, .device = device, .stream = stream, .a = event});
  waited_in_capture(event, device, stream);
}

void sync_event(int64_t event) {
  if (refused_in_capture(event)) raise_cuda_error(900, "operation not permitted when stream is capturing");
  waiting(AWait{WaitKind::EVENT}, [&] { write({.code = Code::SYNC_EVENT, .device = current_device(), .a = event}); });
  check_event(event);
}

void sync_stream(int device, int64_t stream, uint8_t flags) {
  refuse_in_capture(device, stream);
  waiting(AWait{WaitKind::STREAM, 0, false, true}, [&] {
    write({.code = Code::SYNC_STREAM, .device = device, .stream = stream, .flags = flags});
  });
  if (copies_may_run.load(std::memory_order_relaxed)) stream_finished(device, stream);
  to_gpu_trace([&](auto& to) { to.trace_gpu_stream_synchronization(c10::kCUDA, stream_pointer(device, stream)); });
  check_finished(device);
}

void sync_device(int device) {
  refuse_in_capture(device, ALL_STREAMS);
  waiting(AWait{WaitKind::DEVICE}, [&] { write({.code = Code::SYNC_DEVICE, .device = device}); });
  if (copies_may_run.load(std::memory_order_relaxed)) device_finished(device);
  to_gpu_trace([&](auto& to) { to.trace_gpu_device_synchronization(c10::kCUDA); });
  check_finished(device);
}

// torch's interface to a device type: current device and stream, events, waits. It shares its state with the Python
// layer.

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

Device cuda(int index) {
  return Device(c10::kCUDA, DeviceIndex(index));
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return cuda(current_device()); }
  void setDevice(Device device) const override { set_current_device(device_number(device)); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) set_current_device(device.index());
  }
  Stream getStream(Device device) const override {
    int number = device_number(device);
    return Stream(Stream::UNSAFE, cuda(number), current_stream(number));
  }
  Stream getDefaultStream(Device device) const override {
    return Stream(Stream::UNSAFE, cuda(device_number(device)), 0);
  }
  Stream getNewStream(Device device, int priority) const override {
    int number = device_number(device);
    return Stream(Stream::UNSAFE, cuda(number), new_stream(number, priority));
  }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? -3 : 0);
  }
  Stream exchangeStream(Stream stream) const override {
    int device = stream.device_index();
    Stream before(Stream::UNSAFE, stream.device(), current_stream(device));
    set_current_stream(device, stream.id());
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return DeviceIndex(settings().devices); }

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag flag) const override {
    bool is_new = !*event;
    if (is_new) *event = new int64_t(new_event());
    record_event(id(*event), stream.device_index(), stream.id(), flag == c10::EventFlag::BACKEND_DEFAULT);
    to_gpu_trace([&](auto& to) {
      if (is_new) to.trace_gpu_event_creation(c10::kCUDA, address(*event));
      to.trace_gpu_event_record(c10::kCUDA, address(*event), pointer_of(stream));
    });
  }
  void block(void* event, const Stream& stream) const override {
    if (!event) return;
    wait_event(id(event), stream.device_index(), stream.id());
    to_gpu_trace([&](auto& to) { to.trace_gpu_event_wait(c10::kCUDA, address(event), pointer_of(stream)); });
  }
  bool queryEvent(void* event) const override { return !event || is_done(id(event)); }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    if (!event) return;
    event_gone(id(event));
    to_gpu_trace([&](auto& to) { to.trace_gpu_event_deletion(c10::kCUDA, address(event)); });
    delete static_cast<int64_t*>(event);
  }
  double elapsedTime(void* first, void* second, DeviceIndex) const override {
    return elapsed_ms(id(first), id(second));
  }
  bool queryStream(const Stream& stream) const override {
    bool done = stream_done(stream.device_index(), stream.id());
    if (done) check_finished(stream.device_index());
    return done;
  }
  bool isStreamCapturing(const Stream& stream) const override { return capturing(stream.device_index(), stream.id()); }
  void synchronizeStream(const Stream& stream) const override { sync_stream(stream.device_index(), stream.id()); }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    sync_event(id(event));
    to_gpu_trace([&](auto& to) { to.trace_gpu_event_synchronization(c10::kCUDA, address(event)); });
  }
  void synchronizeDevice(DeviceIndex device) const override { sync_device(device_number(int(device))); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    use_on_stream(data, stream.id());
  }

 private:
  static bool is_done(int64_t event) {
    bool done = event_done(event);
    if (done) check_event(event);
    return done;
  }
  static uintptr_t pointer_of(const Stream& stream) { return stream_pointer(stream.device_index(), stream.id()); }
  static int64_t id(void* event) { return *static_cast<int64_t*>(event); }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

} // namespace

} // namespace unstall

// The interface by which torch's CPU build asks about CUDA. torch looks up the class "CUDAHooks" once, while it is
// imported: the shim is loaded before.
namespace at {

using c10::DeviceIndex;

struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DeviceIndex(unstall::settings().devices); }
  int getNumGPUs() const override { return unstall::settings().devices; }
  DeviceIndex current_device() const override { return DeviceIndex(unstall::current_device()); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(DeviceIndex device) const override {
    unstall::set_current_device(unstall::device_number(int(device)));
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    DeviceIndex before = current_device();
    setCurrentDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  void deviceSynchronize(DeviceIndex device) const override {
    unstall::sync_device(unstall::device_number(int(device)));
  }

  const Generator& getDefaultGenerator(DeviceIndex device) const override { return unstall::default_generator(device); }
  Generator getNewGenerator(DeviceIndex device) const override { return unstall::new_generator(device); }

  bool isPinnedPtr(const void* data) const override { return unstall::is_pinned(data); }
  Allocator* getPinnedMemoryAllocator() const override { return unstall::pinned_allocator(); }
  Allocator* getCUDADeviceAllocator() const override { return unstall::device_allocator(); }
  Device getDeviceFromPtr(void*) const override { return Device(kCUDA, current_device()); }

  // The libraries that a wheel for CUDA 13.0 comes with.
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasMAGMA() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  bool supportsBFloat16RNNWithCuDNN() const override { return true; }
  long versionCuDNN() const override { return 91900; }
  long versionRuntimeCuDNN() const override { return 91900; }
  long versionCuDNNFrontend() const override { return 11500; }
  long versionCUDART() const override { return 13000; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
  int64_t cuFFTGetPlanCacheMaxSize(DeviceIndex) const override { return 1023; }
  void cuFFTSetPlanCacheMaxSize(DeviceIndex, int64_t) const override {}
  int64_t cuFFTGetPlanCacheSize(DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(DeviceIndex) const override {}
  std::string showConfig() const override {
    return "  - a virtual GPU of unstall: computed on the CPU, timed by a model\n";
  }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

} // namespace at
