// Where a thread is in Python: lines/_frames.c, which reads it without the GIL.
#pragma once
#include <cstdint>

struct _object;

namespace unstall {

// The number of this thread's stack of Python frames: -1 without Python, -2 where none can be read. Takes the GIL where
// code runs that it has not seen before: no lock may be held.
int32_t python_stack();
// A new list of the stacks from `first` on, each a list of (code, offset). Needs the GIL.
_object* stacks_from(uint32_t first);
void read_stacks(bool wanted);

} // namespace unstall
