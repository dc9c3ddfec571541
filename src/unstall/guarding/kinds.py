"""The kinds of waits. The kind says what the CPU waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from unstall.ways_to_wait import Read

Kind = Literal[
    "value",  # the operator reads a value of the GPU, and waits for it: item(), the number of nonzero elements
    "download",  # a copy to the CPU that blocks, or that the driver stages, since it goes to pageable memory
    "upload",  # a copy from pageable memory that blocks, or that the driver stages
    "pinned_upload",  # a copy from pinned memory that blocks
    "stream",  # synchronize() of a stream
    "event",  # synchronize() of an event
    "device",  # torch.cuda.synchronize()
    "malloc",  # cudaMalloc, or a mapping of memory, since the cache has no block
    "free",  # cudaFree
    "library",  # cudaMalloc or cudaFree of a library that an operator calls, for the library's own memory
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class KindWords:
    """The words that messages use for one kind of wait.

    Attributes:
        does: What the wait is made of, such as "copy of a value to the CPU".
        call: The call of the CUDA runtime that waits, as `unstall.ways_to_wait` knows it.
        operator: The function that programs call, such as "torch.cuda.synchronize". "" if an operator of torch waits.
        read: Whether the wait reads a single "value" or "data" of the GPU. "" if it reads nothing.
        waits_for: What the CPU waits for, such as "the GPU".
    """

    does: str
    call: str
    operator: str = ""
    read: Read = ""
    waits_for: str = "the GPU"


WORDS: dict[Kind, KindWords] = {
    "value": KindWords("copy of a value to the CPU", "cudaMemcpyAsync", read="value"),
    "download": KindWords("copy to the CPU", "cudaMemcpyAsync", read="data"),
    "upload": KindWords("copy from pageable memory", "cudaMemcpyAsync"),
    "pinned_upload": KindWords("copy that blocks", "cudaMemcpyAsync"),
    "stream": KindWords("wait for a stream", "cudaStreamSynchronize", "torch.cuda.Stream.synchronize"),
    "event": KindWords("wait for an event", "cudaEventSynchronize", "torch.cuda.Event.synchronize"),
    "device": KindWords("wait for all streams", "cudaDeviceSynchronize", "torch.cuda.synchronize"),
    "malloc": KindWords("cudaMalloc", "cudaMalloc", waits_for="device memory"),
    "free": KindWords("cudaFree, which waits for all streams", "cudaFree", "torch.cuda.empty_cache"),
    "library": KindWords("memory of a library, such as cuBLAS", "cudaMalloc", waits_for="device memory"),
}
