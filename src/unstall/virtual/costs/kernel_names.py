"""Names the kernels of a GPU that was not measured. The times of its kernels are scaled from a measured GPU.

Libraries compile many kernels for one architecture. The names of these kernels contain the architecture, such as
`nvjet_sm90_…` or `cutlass_80_tensorop_…`. A kernel for a newer architecture does not exist on an older GPU. On the
older GPU, the library has a different kernel, whose name is not known. This module names the unknown kernel by the
operator that launches it.
"""

from __future__ import annotations

import re

_ARCHITECTURE = re.compile(r"(?:[sS]m_?|cutlass_)(\d{1,2})(\d)(?!\d)")
_NEEDS = {"tf32": (8, 0), "pytorch_flash": (8, 0)}
"""The compute capability that a kernel needs if its name contains this word. A kernel needs it even if its name
contains an older architecture.
"""
_ROLE = re.compile(r"fprop|dgrad|wgrad")
"""Which result of a convolution the kernel computes: the output, or the gradient of the input or of the weight."""


_IN_BFLOAT16 = (("__nv_bfloat16", "__half"), ("bfloat16_t", "half_t"), ("BFloat16", "Half"), ("bf16", "f16"))
"""Words in names of kernels for bfloat16, and what the same kernels for float16 have there."""


def in_float16(kernel: str) -> str:
    """Returns the name of a kernel in float16, given that of the kernel in bfloat16."""
    for word, other in _IN_BFLOAT16:
        kernel = kernel.replace(word, other)
    return kernel


def name_on(capability: tuple[int, int], kernel: str, operator: str, dtype: str) -> str:
    """Returns, for a GPU of this compute capability, the name of a measured kernel.

    Returns `kernel` unchanged if a GPU of this compute capability can run the kernel. Otherwise returns a name such as
    "addmm_float32_kernel" or "convolution_backward_wgrad_float16_kernel". This name contains the operator (without
    `aten::`) and the dtype of the operator's inputs.
    """
    if needed_capability(kernel) <= capability:
        return kernel
    role = _ROLE.search(kernel)
    return "_".join((operator.strip("_"), *([role[0]] if role else []), dtype, "kernel"))


def needed_capability(kernel: str) -> tuple[int, int]:
    """Returns the lowest compute capability on which the kernel exists, according to the kernel's name. Returns (0, 0)
    if the name contains no architecture. The names of `at::native` kernels contain no architecture.
    """
    named = [(int(major), int(minor)) for major, minor in _ARCHITECTURE.findall(kernel)]
    return max([*named, *(least for word, least in _NEEDS.items() if word in kernel)], default=(0, 0))
