// The keeper: an object of Python that simulates what the log says. All of these take the GIL; no lock may be held.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

struct _object;

namespace unstall {

void set_keeper(_object* keeper); // with the GIL; None for none
// At a place where Python may run: lets the keeper drain the log once it is long. What goes wrong there the program's
// main thread is told when it is back in Python.
void drain_when_long();
// Has the keeper take in this request, which was logged. Raises c10::OutOfMemoryError where the device is full.
void make_room(int device, int64_t bytes, int64_t allocation);
// For the next call that gives the device something to do, or waits for it: `exception` is raised there, of which no
// earlier call was told. With the GIL.
void raise_later(_object* exception);
extern std::atomic<bool> is_raised_later;
void raise_now();
inline void check_told() {
  if (is_raised_later.load(std::memory_order_relaxed)) raise_now();
}
bool event_done(int64_t event);
bool stream_done(int device, int64_t stream);
double elapsed_ms(int64_t first, int64_t second);
// "train.py:41 in forward": where a Python stack of the program is; "" where that is not known.
std::string place_of(int32_t stack);

} // namespace unstall
