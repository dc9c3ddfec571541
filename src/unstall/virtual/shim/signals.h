// The program's signal handlers: none of them runs in the middle of a simulation.
#pragma once

namespace unstall {

// While there is one in the main thread, where Python runs the handlers, signals that have a handler of Python's wait;
// then they come. With the GIL.
class SignalsWait {
 public:
  SignalsWait();
  ~SignalsWait();
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;
};

void hold_signals();
void release_signals(); // as often as they were held

} // namespace unstall
