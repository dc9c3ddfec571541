// The virtual devices: each thread's current device and streams, events, CUDA graphs, and random numbers.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <functional>

namespace unstall {

constexpr int MOST_DEVICES = 64;

struct Settings {
  int devices = 1;
  bool skip = false; // numerics="skip": shapes without values
  bool as_device = false; // numerics="device": see device_values.h
  int major = 9; // the first number of the devices' compute capability
  bool has_tf32 = true; // the devices have it, and it is not switched off
};
Settings& settings();

int current_device();
void set_current_device(int device);
// Checked: raises CUDA's error if there is no such device. -1 is the current one.
int device_number(c10::Device device);
int device_number(int device);

int64_t current_stream(int device);
void set_current_stream(int device, int64_t stream);
// From pools of 32 for each priority, round robin, with ids packed as in c10. The lowest priority is 0, higher ones are
// negative.
int64_t new_stream(int device, int priority);

// CUDA's error of this number, as torch.AcceleratorError.
[[noreturn]] void raise_cuda_error(int code, const char* text);

int64_t new_event();
// `timed`: whether its time is asked for.
void record_event(int64_t event, int device, int64_t stream, bool timed = false);
void wait_event(int64_t event, int device, int64_t stream);
void sync_event(int64_t event);
void sync_stream(int device, int64_t stream, uint8_t flags = 0);
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

// CUDA graphs: work on a stream that is captured is kept and not computed; a replay computes it.

bool capturing(int device, int64_t stream);
bool capturing_here(int device); // the current stream
// Adds a node to the graph that captures this device's current stream: a replay calls it.
void keep(int device, std::function<void()> node);
// Memory that was allocated and freed during the capture of a graph serves later allocations of the same size there: a
// replay runs the nodes in the order of their capture.
struct Spare {
  int64_t graph = 0; // that captures the device's current stream, or 0
  c10::intrusive_ptr<c10::StorageImpl> cpu; // nullptr if there is none
};
Spare spare_here(int device, size_t bytes);
void keep_spare(int64_t graph, c10::intrusive_ptr<c10::StorageImpl> cpu);
// A stream that waits for an event recorded on a captured stream is captured, too.
void recorded_in_capture(int64_t event, int device, int64_t stream);
void waited_in_capture(int64_t event, int device, int64_t stream);

// Beside the ids of streams: what a call waits for.
constexpr int64_t ALL_STREAMS = -1, NO_STREAM = -2;
// Whether CUDA refuses a call that waits while a graph is captured. A wait for captured work is refused in every mode;
// any other wait is refused in all threads if a capture is "global", and in the capturing thread if it is
// "thread_local". A refused call spoils the capture.
bool refused_in_capture(int device, int64_t stream);
bool refused_in_capture(int64_t event);
// Raises CUDA's error for it.
void refuse_in_capture(int device, int64_t stream);

enum class CaptureMode { GLOBAL, THREAD_LOCAL, RELAXED };
void capture_begin(int64_t graph, int device, int64_t stream, int64_t pool, CaptureMode mode);
void capture_end(int64_t graph);
void replay(int64_t graph, int device, int64_t stream);
void free_graph(int64_t graph);

// Random numbers: a seed and an offset, as CUDA's generators have.

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);

// Another number for each call, by the device's seed: for the order of an operator's atomics. Its random numbers do not
// change.
uint64_t seed_of_atomics(int device);

// For one operator: a generator of the CPU whose numbers follow from the seed and offset of this one, which moves on.
// Raises as CUDA does if the generator is of another device type.
at::Generator draw_from(const std::optional<at::Generator>& generator, int device);

// Replaces the CPU's default generator by a virtual device's for as long as it lives: for kernels that take no
// generator. The program's own random numbers on the CPU do not change. If the kernel uses none, the device's do not
// change either.
class InsteadOfDefault {
 public:
  explicit InsteadOfDefault(int device);
  ~InsteadOfDefault();
  InsteadOfDefault(const InsteadOfDefault&) = delete;
  InsteadOfDefault& operator=(const InsteadOfDefault&) = delete;

 private:
  struct State;
  State* before_;
  int device_;
};

} // namespace unstall
