"""Words that differ between platforms: CUDA on NVIDIA's cards, HIP on AMD's, SYCL and Level Zero on Intel's."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from unstall.timeline.columns import HostKind, Timeline

Platform = Literal["cuda", "hip", "xpu"]

_CALLS: tuple[tuple[Platform, re.Pattern[str]], ...] = (
    ("hip", re.compile(r"_?hip[A-Z]")),
    ("xpu", re.compile(r"(?:ur|ze|pi|piext)[A-Z]")),
)
# Texts are written in CUDA's words. These take their place, in this order. What torch itself calls "cuda" on an AMD
# card, such as torch.cuda.synchronize and ProfilerActivity.CUDA, stays, and so does a file.
_WORDS: dict[Platform, tuple[tuple[str, str], ...]] = {
    "cuda": (),
    "hip": (
        (r"\bPYTORCH_CUDA_ALLOC_CONF\b", "PYTORCH_HIP_ALLOC_CONF"),
        (r"\bcudaHostAlloc\b", "hipHostMalloc"),
        (r"\bcudaFreeHost\b", "hipHostFree"),
        (r"(?<![/\w])cuda(?=[A-Z])", "hip"),
        (r"(?<![./\w])CUDA\b(?!/)", "HIP"),
    ),
    "xpu": (
        (r"\bPYTORCH_CUDA_ALLOC_CONF\b", "PYTORCH_ALLOC_CONF"),
        (r"\btorch\.cuda\b", "torch.xpu"),
        (r"\bcudaMemcpyAsync\b", "sycl::queue::memcpy"),
        (r"\bcudaMalloc\b", "sycl::malloc_device"),
        (r"\bcudaFree\b", "sycl::free"),
        (r"(?<![/\w])CUDA\b(?!/)", "XPU"),
    ),
}
# The names of CUDA for calls of HIP that differ by more than the prefix (hipify's tables, HIP 6).
_COUNTERPARTS = {
    "hipModuleLaunchKernel": "cuLaunchKernel",
    "hipExtModuleLaunchKernel": "cuLaunchKernel",
    "hipExtLaunchKernel": "cudaLaunchKernel",
    "hipHostMalloc": "cudaHostAlloc",
    "hipHostFree": "cudaFreeHost",
    "hipExtMallocWithFlags": "cudaMalloc",
    "hipMemcpyWithStream": "cudaMemcpyAsync",  # torch calls it if it then waits for the stream
    "hipCtxSynchronize": "cuCtxSynchronize",
    "hipModuleLoadData": "cuModuleLoadData",
}


def platform(timeline: Timeline) -> Platform:
    """Returns to which platform's API the calls of a run belong, such as "cuda". Returns "cuda" if
    no call belongs to another platform.
    """
    host = timeline.host
    calls = (host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL)
    names = [timeline.text(int(index)) for index in np.unique(host.name[calls])]
    return next((key for key, pattern in _CALLS if any(pattern.match(name) for name in names)), "cuda")


def in_words_of(key: Platform, text: str) -> str:
    """Returns `text` with the words of the platform `key` in place of CUDA's words."""
    for pattern, word in _WORDS[key]:
        text = re.sub(pattern, word, text)
    return text


def counterpart(name: str) -> str:
    """Returns the name of the CUDA call that does what the HIP call `name` does. If `name` is not
    the name of a HIP call, returns `name`.
    """
    if not re.match(r"hip[A-Z]", name):
        return name
    return _COUNTERPARTS.get(name, "cuda" + name[len("hip") :])
