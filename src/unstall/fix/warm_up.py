"""`warm_up`: runs the largest inputs first. The memory that the caching allocator reserves for these inputs is large
enough for all smaller inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from unstall.errors import UsageError
from unstall.figures import counted, share, size
from unstall.fix.tensors.accelerator import accelerator_for, is_there
from unstall.fix.tensors.nesting import tensors_in
from unstall.fix.tensors.parts import bytes_of
from unstall.fix.wrapped import Printed
from unstall.guest.rng import RandomStates
from unstall.virtual import Block, CachingAllocator, OutOfMemoryError

Trace = list[tuple[str, int, int, int]]
"""The requests of one call to the caching allocator, in order. Each request is ("alloc" or "free", address, bytes,
stream)."""


@dataclass(frozen=True, slots=True)
class WarmUpStats(Printed):
    """Statistics of a `warm_up`. A model of the caching allocator predicts the reserved memory. The model starts with
    an empty cache. A prediction is None if memory was not recorded, or if memory runs out in the model."""

    calls: int
    largest_bytes: int  # size of the largest call's inputs
    reserved_bytes: int | None  # largest inputs first
    reserved_rising_bytes: int | None  # smallest inputs first, as when a program's shapes grow
    peak_bytes: int | None  # most bytes allocated at a time
    note: str

    @property
    def text(self) -> str:
        text = f"{counted(self.calls, 'call')}, inputs of up to {size(self.largest_bytes)}"
        if self.reserved_bytes is not None:
            text += f"; largest first, {size(self.reserved_bytes)} are reserved"
            if self.reserved_rising_bytes is not None:
                more = self.reserved_rising_bytes - self.reserved_bytes
                text += f", smallest first {size(self.reserved_rising_bytes)}"
                text += f" ({share(more, self.reserved_rising_bytes)} saved)" if more > 0 else " (nothing saved)"
            text += f"; at most {size(self.peak_bytes or 0)} of it in use"
        return f"{text}; {self.note}" if self.note else text


def warm_up(fn: Callable[..., object], *largest_inputs: object) -> WarmUpStats:
    """Calls `fn` with each input, the largest first. Predicts the bytes that the caching allocator reserves in this
    order, and in the opposite order.

        print(unstall.warm_up(forward_and_backward, longest_batch, usual_batch))

    The states of the random number generators are restored afterwards. All other side effects of `fn` remain. So pass a
    step without lasting side effects: forward and backward, without the optimizer.

    Args:
        fn: The function to call.
        *largest_inputs: One input for each call of `fn`. A tuple has all positional arguments; any other object is the
            only argument. The tensors in an input may have any shape and dtype, and may be in nested containers.

    Returns:
        Statistics: the reserved bytes with the largest input first, the reserved bytes with the smallest input first,
        and the peak of the allocated bytes.

    Raises:
        UsageError: `fn` cannot be called, or there are no inputs.
    """
    if not callable(fn):
        raise UsageError(f"warm_up() calls a function, and {fn!r} is none")
    if not largest_inputs:
        raise UsageError("warm_up() needs at least one input: the largest that the program will have")
    ordered = sorted(largest_inputs, key=_bytes_of, reverse=True)
    largest = _bytes_of(ordered[0])
    devices = [tensor.device for value in ordered for tensor in tensors_in(value) if tensor.device.type != "cpu"]
    states = RandomStates(devices=_all_like(devices[0] if devices else torch.device("cuda")))
    accelerator = accelerator_for(devices[0] if devices else "cuda")
    why = None
    if accelerator is None or accelerator.device.type != "cuda":
        why = "there is no CUDA device: no memory was recorded"
    elif getattr(torch._C, "_cuda_isHistoryEnabled", bool)():
        why = "the program records its own memory: nothing was recorded here"
    try:
        if accelerator is None or why is not None:
            for value in ordered:
                _call(fn, value)
            return WarmUpStats(len(ordered), largest, None, None, None, why or "")
        traces = [_recorded(fn, value, accelerator.device) for value in ordered]
    finally:
        states.put_back()
    total = accelerator.total_bytes()
    with_it, peak = replay_reserved(traces, total)
    without, _ = replay_reserved(traces[::-1], total)
    note = "" if len(ordered) > 1 else "give it smaller inputs too, and it can say what that saves"
    return WarmUpStats(len(ordered), largest, with_it, without if len(ordered) > 1 else None, peak, note)


def replay_reserved(traces: list[Trace], total_bytes: int) -> tuple[int | None, int | None]:
    """Replays the memory requests of several calls in the model of the caching allocator, in the order of `traces`.

    Returns (reserved, peak): the bytes that are reserved at the end, and the peak of the allocated bytes. Returns
    (None, None) if memory runs out in the model.
    """
    allocator = CachingAllocator(total_bytes)
    held: dict[tuple[int, int], Block] = {}
    peak = 0
    for call, trace in enumerate(traces):
        for action, address, count, stream in trace:
            if action == "alloc":
                try:
                    held[call, address] = allocator.malloc(count, stream)
                except OutOfMemoryError:
                    return None, None
                peak = max(peak, allocator.memory_allocated())
            elif (call, address) in held:
                allocator.free(held.pop((call, address)))
    return allocator.memory_reserved(), peak


def _recorded(fn: Callable[..., object], value: object, device: torch.device) -> Trace:
    """Calls `fn` and returns the memory requests of the call. Memory that `fn` does not free is not freed by these
    requests."""
    torch.cuda.synchronize(device)
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=10_000_000)
    try:
        _call(fn, value)
        torch.cuda.synchronize(device)
        entries = torch.cuda.memory._snapshot(device)["device_traces"][device.index or 0]
    finally:
        torch.cuda.memory._record_memory_history(None)
    actions = {"alloc": "alloc", "free_requested": "free"}
    return [
        (actions[entry["action"]], int(entry["addr"]), int(entry["size"]), int(entry["stream"]))
        for entry in entries
        if entry["action"] in actions
    ]


def _call(fn: Callable[..., object], value: object) -> None:
    fn(*value) if isinstance(value, tuple) else fn(value)


def _bytes_of(value: object) -> int:
    return sum(map(bytes_of, tensors_in(value)))


def _all_like(device: torch.device) -> list[torch.device]:
    """Returns all devices of the same type as `device`. The warmed-up function may use the random number generator of
    any of these devices."""
    if not is_there(device):
        return []
    count = torch.get_device_module(device).device_count()
    return [torch.device(device.type, index) for index in range(count)]
