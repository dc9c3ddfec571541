// What torch asks of a device type: current device and stream, events, waits. The same state as the Python layer's.
#include "asserts.h"
#include "devices.h"
#include "graphs.h"
#include "keeper.h"
#include "log.h"
#include "memory.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace unstall {
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

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new int64_t(new_event());
    record_event(id(*event), stream.device_index(), stream.id());
  }
  void block(void* event, const Stream& stream) const override {
    if (event) wait_event(id(event), stream.device_index(), stream.id());
  }
  bool queryEvent(void* event) const override { return !event || is_done(id(event)); }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    if (!event) return;
    event_gone(id(event));
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
    if (event) sync_event(id(event));
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
  static int64_t id(void* event) { return *static_cast<int64_t*>(event); }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

} // namespace
} // namespace unstall
