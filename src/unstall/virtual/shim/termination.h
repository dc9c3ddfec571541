// Keeps the run of a program before a signal ends the program.
#pragma once
#include <Python.h>

namespace unstall {

// Calls `keep` once, in its own thread, before SIGTERM or SIGHUP ends this process, unless the program handles the
// signal. Also calls `keep` before this process ends because `unstall run` was killed. Afterwards, the signal ends the
// process as usual. To Python, and so to the program, it looks as if the signals had no handlers.
void keep_at_termination(PyObject* keep);

}
