// The keeper: an object of Python that simulates what the log says. All of these take the GIL; no lock may be held.
#pragma once
#include <cstdint>
#include <string>

struct _object;

namespace unstall {

void set_keeper(_object* keeper); // with the GIL; None for none
// At a place where Python may run: lets the keeper drain the log once it is long.
void drain_when_long();
// Raises c10::OutOfMemoryError where the keeper says that the device is full.
void make_room(int device, int64_t bytes);
bool event_done(int64_t event);
bool stream_done(int device, int64_t stream);
double elapsed_ms(int64_t first, int64_t second);
// "train.py:41 in forward": where a Python stack of the program is; "" where that is not known.
std::string place_of(int32_t stack);

} // namespace unstall
