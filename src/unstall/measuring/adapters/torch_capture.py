"""CUDA graphs of a call by torch. The call has then run once.

What a capture computes is computed when it is launched. So it is launched once at once, before anything else is given
the memory that the call let go of: whatever the program keeps then holds what a call would have left there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from unstall.guest.graph_capture import capture, own_stream


def launched(torch: Any, index: int, graph: Any, run: Callable[[], Any]) -> bool | None:
    """Captures all that `run` puts on the device with index `index`, and launches it once.

    True where it may be launched again: it kept nothing that it made, and let go of nothing that was there. None where
    it cannot be captured: then `run` has begun, and has perhaps not ended.
    """
    pool = torch.cuda.graph_pool_handle()
    in_use: list[int] = []  # before and after: what a capture itself takes, say for generators, is the graph's

    def counted() -> None:
        in_use.append(_in_use(torch, index))
        run()
        in_use.append(_in_use(torch, index))

    stream = _stream(index)
    stream.wait_stream(torch.cuda.current_stream(index))
    try:
        capture(graph, counted, pool, stream)
    except Exception:
        return None
    try:
        graph.replay()
    except RuntimeError:  # there is no memory for it
        graph.reset()
        return None
    try:
        closed = bool(torch._C._cuda_checkPoolLiveAllocations(index, pool, set()))
    except (AttributeError, RuntimeError):  # of an allocator that does not tell
        return False
    return closed and in_use[0] == in_use[1]


def _in_use(torch: Any, index: int) -> int:
    return int(torch.cuda.memory_stats(index).get("allocated_bytes.all.current", 0))


@lru_cache(maxsize=16)
def _stream(index: int) -> Any:
    """One a device: cuBLAS keeps a workspace for each that it was ever used on."""
    return own_stream(index)
