"""What kernels are called on a GPU whose times are another GPU's, scaled.

Libraries compile many kernels for one architecture and name them by it, such as `nvjet_sm90_…` or
`cutlass_80_tensorop_…`. A kernel of a newer architecture does not exist on an older GPU. There the library has another
kernel, whose name nobody knows, so such a kernel is named by the operator that launches it.
"""

from __future__ import annotations

import re

_ARCHITECTURE = re.compile(r"(?:[sS]m_?|cutlass_)(\d{1,2})(\d)(?!\d)")
_NEEDS = {"tf32": (8, 0), "pytorch_flash": (8, 0)}
"""The compute capability that kernels with this word in their names need, whatever architecture the names give."""
_ROLE = re.compile(r"fprop|dgrad|wgrad")
"""Which result of a convolution the kernel computes: the output, or the gradient of the input or of the weight."""


def name_on(capability: tuple[int, int], kernel: str, operator: str, dtype: str) -> str:
    """Returns the name of a measured kernel on a GPU of this compute capability.

    The name is kept if such a GPU can have the kernel. Otherwise it is like "addmm_float32_kernel" or
    "convolution_backward_wgrad_float16_kernel", from the operator (without `aten::`) and the type of its inputs.
    """
    if needed_capability(kernel) <= capability:
        return kernel
    role = _ROLE.search(kernel)
    return "_".join((operator.strip("_"), *([role[0]] if role else []), dtype, "kernel"))


def needed_capability(kernel: str) -> tuple[int, int]:
    """Returns the least compute capability of a GPU that has the kernel, as far as its name tells; (0, 0) for a name
    that tells nothing, such as those of `at::native` kernels.
    """
    named = [(int(major), int(minor)) for major, minor in _ARCHITECTURE.findall(kernel)]
    return max([*named, *(least for word, least in _NEEDS.items() if word in kernel)], default=(0, 0))
