"""The kinds of waits, by what the CPU does while it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["value", "download", "upload", "stream", "event", "device", "malloc", "free"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class KindWords:
    """Words about a kind."""

    does: str  # after an arrow: "aten::item → copy to the CPU"
    call: str  # the runtime's call, as `ways_to_wait` knows it
    operator: str = ""  # what a program calls, if no operator of torch's waits
    waits_for: str = "the GPU"


WORDS: dict[Kind, KindWords] = {
    "value": KindWords("copy of a value to the CPU", "cudaMemcpyAsync"),
    "download": KindWords("copy to the CPU", "cudaMemcpyAsync"),
    "upload": KindWords("copy to the GPU", "cudaMemcpyAsync"),
    "stream": KindWords("wait for a stream", "cudaStreamSynchronize", "torch.cuda.Stream.synchronize"),
    "event": KindWords("wait for an event", "cudaEventSynchronize", "torch.cuda.Event.synchronize"),
    "device": KindWords("wait for all streams", "cudaDeviceSynchronize", "torch.cuda.synchronize"),
    "malloc": KindWords("cudaMalloc", "cudaMalloc", "torch.empty", "device memory"),
    "free": KindWords("cudaFree, which waits for all streams", "cudaFree", "torch.cuda.empty_cache"),
}
