// What a program that is being ended by a signal still does: it keeps its run.
#pragma once
#include <Python.h>

namespace unstall {

// Calls `keep` once, in a thread of its own, before SIGTERM or SIGHUP ends this process, if nothing of the program handles
// these signals, and before this process ends with `unstall run`. Then the signal ends it as it would. For Python, and so
// for the program, the signals have no handlers.
void keep_at_termination(PyObject* keep);

}
