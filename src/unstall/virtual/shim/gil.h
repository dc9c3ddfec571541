// For C++ that calls Python: the GIL, and exceptions of Python as those of C++.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <string>

namespace unstall {

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// A thread that waits for the GIL while the interpreter ends never returns.
inline bool python_runs() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// Raises the exception that is set: as torch's own error where the device is full, else as it is.
[[noreturn]] inline void rethrow() {
  pybind11::error_already_set error;
  const char* name = reinterpret_cast<PyTypeObject*>(error.type().ptr())->tp_name;
  std::string full = name ? name : "";
  bool out_of_memory = full.size() >= 16 && full.compare(full.size() - 16, 16, "OutOfMemoryError") == 0;
  if (!out_of_memory) throw error;
  std::string text;
  PyObject* str = PyObject_Str(error.value().ptr());
  if (const char* utf8 = str ? PyUnicode_AsUTF8(str) : nullptr) text = utf8;
  Py_XDECREF(str);
  PyErr_Clear();
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  throw error;
}

} // namespace unstall
