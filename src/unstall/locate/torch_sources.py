"""A table of the files of PyTorch's source that implement operators.

The table has only operators whose functions were looked up in https://github.com/pytorch/pytorch.
For all other operators, reports show the operator's name without a file.
"""

from __future__ import annotations

import re

_NATIVE = "aten/src/ATen/native"
_ANY_DEVICE: dict[str, str] = {
    "aten::to": f"{_NATIVE}/TensorConversions.cpp",  # to, to_impl
    "aten::_to_copy": f"{_NATIVE}/TensorConversions.cpp",  # _to_copy
    "aten::copy_": f"{_NATIVE}/Copy.cpp",  # copy_, copy_impl
    "aten::item": f"{_NATIVE}/Scalar.cpp",  # item
    "aten::pin_memory": f"{_NATIVE}/Memory.cpp",  # pin_memory
}
_ON_CUDA: dict[str, str] = {
    "aten::copy_": f"{_NATIVE}/cuda/Copy.cu",  # copy_kernel_cuda, copy_device_to_device
    "aten::_local_scalar_dense": f"{_NATIVE}/cuda/CUDAScalar.cu",  # _local_scalar_dense_cuda
    "aten::nonzero": f"{_NATIVE}/cuda/Nonzero.cu",  # nonzero_cuda, nonzero_out_cuda
}
"""For each operator, the source file of its part that works on a CUDA device."""
_BINDING = re.compile(r"<built-in method to of (?:Tensor|Parameter) object")
_BINDINGS = "tools/autograd/templates/python_variable_methods.cpp"  # THPVariable_to


def source_files(name: str) -> tuple[str, ...]:
    """Returns the source files of PyTorch that implement an operator: the file for all devices
    first, then the file for CUDA. Returns () if no file is known.

    `name` is the name of the operator, or the name of a tensor's method as a recorded Python frame
    has it.
    """
    if _BINDING.match(name):
        return (_BINDINGS,)
    return tuple(table[name] for table in (_ANY_DEVICE, _ON_CUDA) if name in table)
