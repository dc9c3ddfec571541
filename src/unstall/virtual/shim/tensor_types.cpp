#include "tensor_types.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/tensor/python_tensor.h>

#include <utility>

namespace py = pybind11;

namespace unstall {
namespace {

// The start of torch's struct PyTensorType (torch/csrc/tensor/python_tensor.cpp). torch refuses a type only if this
// says that it is one of CUDA's, and does all the rest by its dispatch key.
struct TensorType {
  PyTypeObject python;
  PyObject* dtype;
  PyObject* layout;
  bool is_cuda;
};

TensorType& tensor_type(PyObject* type) {
  return *reinterpret_cast<TensorType*>(type);
}

// While it lives, torch does not refuse the type. The GIL is held.
class NotRefused {
 public:
  explicit NotRefused(PyObject* type) : type_(tensor_type(type)) { type_.is_cuda = false; }
  ~NotRefused() { type_.is_cuda = true; }
  NotRefused(const NotRefused&) = delete;
  NotRefused& operator=(const NotRefused&) = delete;

 private:
  TensorType& type_;
};

newfunc torchs_own = nullptr;

PyObject* new_tensor(PyTypeObject* type, PyObject* arguments, PyObject* named) {
  NotRefused not_refused(reinterpret_cast<PyObject*>(type));
  return torchs_own(type, arguments, named);
}

bool is_true(const py::object& type, const char* name) {
  return type.attr(name).ptr() == Py_True;
}

} // namespace

bool make_tensor_type(const py::object& type) {
  auto& known = tensor_type(type.ptr());
  bool as_known = PyType_Check(type.ptr()) && known.dtype == type.attr("dtype").ptr() &&
      known.layout == type.attr("layout").ptr() && is_true(type, "is_cuda");
  if (!as_known) return false;
  {
    NotRefused changed(type.ptr());
    if (is_true(type, "is_cuda")) return false;
  }
  if (known.python.tp_new != new_tensor) torchs_own = std::exchange(known.python.tp_new, new_tensor);
  return true;
}

void set_default_tensor_type(const py::object& type) {
  NotRefused not_refused(type.ptr());
  try {
    torch::tensors::py_set_default_tensor_type(type.ptr());
  } catch (python_error& error) {
    error.restore();
    throw py::error_already_set();
  }
}

} // namespace unstall
