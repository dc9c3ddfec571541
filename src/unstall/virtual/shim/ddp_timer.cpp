// The timer that DistributedDataParallel cannot do without: torch looks it up by the type of device, and has that for
// CUDA in builds for CUDA alone (reducer_cuda.cpp).
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <map>

namespace unstall {
namespace {

class DdpTimer final : public c10d::Timer {
 public:
  explicit DdpTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    c10d::Timer::record(event);
    c10::Event& on_device = recorded_.try_emplace(event, c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT).first->second;
    on_device.record(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device_));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto from = recorded_.find(start), to = recorded_.find(end);
    if (from == recorded_.end() || to == recorded_.end()) return {};
    if (!from->second.query() || !to->second.query()) return {};
    double milliseconds = from->second.elapsedTime(to->second);
    if (milliseconds < 0) return {};
    return int64_t(milliseconds * 1e6);
  }

 private:
  c10::Device device_;
  std::map<Event, c10::Event> recorded_;
};

} // namespace
} // namespace unstall

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, unstall::DdpTimer);
} // namespace c10d
