"""Names the kernels of a GPU that was not measured, whose times are scaled from those of a measured
GPU.

Libraries compile many kernels for one architecture, and name it in the kernel, as in `nvjet_sm90_…`
and `cutlass_80_tensorop_…`. An older GPU does not have such a kernel. There the library runs
another one, whose name is not known here. It gets a name with the operator that launches it.
"""

from __future__ import annotations

import re

_ARCHITECTURE = re.compile(r"(?:[sS]m_?|cutlass_)(\d{1,2})(\d)(?!\d)")
_NEEDS = {"tf32": (8, 0), "pytorch_flash": (8, 0)}
"""The compute capability that a kernel needs if its name has this word in it, whatever architecture the name says."""
_ROLE = re.compile(r"fprop|dgrad|wgrad")
"""Matches what a kernel of a convolution computes: the output, the gradient of the input, or the
gradient of the weight.
"""


_IN_BFLOAT16 = (
    ("nvjet_sm90_tst", "nvjet_sm90_hsh"),
    ("nvjet_sm90_tss", "nvjet_sm90_hss"),
    ("__nv_bfloat16", "__half"),
    ("bfloat16_t", "half_t"),
    ("BFloat16", "Half"),
)
"""Words in the names of kernels for bfloat16, and the words that the same kernels for float16 have
in their place.
"""
_OF_BOTH = (("bfloat16", "float16"), ("bf16", "f16"))
"""The same, but here the word for float16 is a part of that for bfloat16. So it cannot simply be replaced by it."""
_HALF = re.compile(r"f16(?!\d)")


def in_half(kernel: str, dtype: str) -> str:
    """Returns the name that a kernel for either data type of 16 bits has for `dtype`: "float16" or "bfloat16"."""
    for word, other in (*_IN_BFLOAT16, *_OF_BOTH):
        kernel = kernel.replace(word, other)
    if dtype == "bfloat16":
        for word, other in _IN_BFLOAT16:
            kernel = kernel.replace(other, word)
        kernel = _HALF.sub("bf16", kernel)
    return kernel


def name_on(capability: tuple[int, int], kernel: str, operator: str, dtype: str) -> str:
    """Returns the name of a measured kernel on another GPU: its own name if it exists on that GPU,
    else a name such as "addmm_float32_kernel" or "convolution_backward_wgrad_float16_kernel".

    Args:
        capability: The compute capability of the other GPU.
        kernel: The name of the measured kernel.
        operator: The name of the operator that launches it, without "aten::".
        dtype: The data type of the operator's arguments.
    """
    if needed_capability(kernel) <= capability:
        return kernel
    role = _ROLE.search(kernel)
    return "_".join((operator.strip("_"), *([role[0]] if role else []), dtype, "kernel"))


def needed_capability(kernel: str) -> tuple[int, int]:
    """Returns the lowest compute capability on which a kernel exists, as its name tells. Returns
    `(0, 0)` if the name tells none, as for the kernels of `at::native`.
    """
    named = [(int(major), int(minor)) for major, minor in _ARCHITECTURE.findall(kernel)]
    return max([*named, *(least for word, least in _NEEDS.items() if word in kernel)], default=(0, 0))
