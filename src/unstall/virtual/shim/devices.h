// The virtual devices, and where each thread is among them: current device, current streams.
#pragma once
#include <c10/core/Device.h>
#include <cstdint>

namespace unstall {

constexpr int MOST_DEVICES = 64;

struct Settings {
  int devices = 1;
  bool skip = false; // numerics="skip": shapes without values
};
Settings& settings();

int current_device();
void set_current_device(int device);
// Checked: raises CUDA's error where there is no such device. -1 is the current one.
int device_number(c10::Device device);
int device_number(int device);

int64_t current_stream(int device);
void set_current_stream(int device, int64_t stream);
// From the pools of 32 a priority, round robin, with the ids that c10 packs. Lower priorities are 0; higher ones negative.
int64_t new_stream(int device, int priority);

// CUDA's error of this number, as torch.AcceleratorError.
[[noreturn]] void raise_cuda_error(int code, const char* text);

int64_t new_event();
void record_event(int64_t event, int device, int64_t stream);
void wait_event(int64_t event, int device, int64_t stream);
void sync_event(int64_t event);
void sync_stream(int device, int64_t stream);
void sync_device(int device);

// Makes `device` the current one for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { set_current_device(device); }
  ~OnDevice() { set_current_device(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

} // namespace unstall
