// The simulator: an object of Python (simulation/simulator.py) that simulates what the log says. The functions here
// that ask it take the GIL: no lock may be held.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

struct _object;

namespace unstall {

void set_simulator(_object* simulator); // with the GIL; None for none
// At a place where Python may run: has the simulator take in the log once that is long. If this fails, the error is
// raised in the program's main thread when that is back in Python.
void drain_when_long();
// Has the simulator take in this request, which was logged. Raises c10::OutOfMemoryError if the device is full.
void make_room(int device, int64_t allocation);
// What is known of a call's cost before it is simulated.
struct CallFacts {
  int64_t growth = -1; // the most by which its own memory can make reserved memory grow, as set_headroom() counts;
                       // -1 if this is not known yet
  bool reads = false;  // whether its own copies to the host, for which the host waits, are simulated with its launch
};
CallFacts call_facts(int32_t signature);
bool event_done(int64_t event);
bool stream_done(int device, int64_t stream);
double elapsed_ms(int64_t first, int64_t second);
// Calls the simulator's method with the arguments that `make` gives as a new tuple, with the GIL. Returns its integer, or
// 0 if there is no simulator.
int64_t ask_simulator(const char* method, const std::function<_object*()>& make);
// Where a Python stack of the program is: "train.py:41 in forward"; "" if that is not known.
std::string place_of(int32_t stack);
// Warns the user, by Python's warnings, at the program's own line of a Python stack.
void warn_at(int32_t stack, const char* message);

// Has the next call that gives the device something to do, or waits for it, raise `exception`. With the GIL.
void raise_later(_object* exception);
extern std::atomic<bool> is_raised_later;
void raise_now();
inline void raise_pending() {
  if (is_raised_later.load(std::memory_order_relaxed)) raise_now();
}

// While there is one in the main thread, in which Python runs signal handlers, signals that have a Python handler wait:
// no handler runs in the middle of a simulation. With the GIL.
class SignalsWait {
 public:
  SignalsWait();
  ~SignalsWait();
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;
};

void hold_signals();
void release_signals(); // once for each hold

} // namespace unstall
