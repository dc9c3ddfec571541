"""The largest shapes first: what they leave in the caching allocator serves all that are smaller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
"""Of one call, in order: ("alloc" or "free", address, bytes, stream)."""


@dataclass(frozen=True, slots=True)
class WarmUpStats(Printed):
    """Reserved memory by the allocator model, from an empty cache. None: nothing was recorded, or it does not fit."""

    calls: int
    largest_bytes: int  # of the inputs of one call
    reserved_bytes: int | None  # largest inputs first
    reserved_rising_bytes: int | None  # smallest first, as a program of growing shapes has it
    peak_bytes: int | None  # allocated, at the most
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


def warm_up(fn: Callable[..., Any], *largest_inputs: Any) -> WarmUpStats:
    """Call `fn` with each of these inputs, the largest first, and say what that saves in reserved memory.

    An input that is a tuple holds the arguments of one call; anything else is the only argument. Random states are put
    back afterwards; all else that `fn` does it does, so give it a step whose effects you can spare (a forward and
    backward pass without the optimizer). Raises UsageError without a function or without inputs.
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
        why = "the program records its memory itself: nothing was recorded"
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
    note = "" if len(ordered) > 1 else "with smaller inputs too it could say what that saves"
    return WarmUpStats(len(ordered), largest, with_it, without if len(ordered) > 1 else None, peak, note)


def replay_reserved(traces: list[Trace], total_bytes: int) -> tuple[int | None, int | None]:
    """The reserved bytes at the end, and the most that were allocated, of calls one after the other. None where the
    device has no room for that order."""
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


def _recorded(fn: Callable[..., Any], value: Any, device: torch.device) -> Trace:
    """What the call asks of the allocator. What it leaves allocated stays so in a replay."""
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


def _call(fn: Callable[..., Any], value: Any) -> None:
    fn(*value) if isinstance(value, tuple) else fn(value)


def _bytes_of(value: Any) -> int:
    return sum(map(bytes_of, tensors_in(value)))


def _all_like(device: torch.device) -> list[torch.device]:
    """All devices of its type: the function may draw on others than those of its inputs."""
    if not is_there(device):
        return []
    count = torch.get_device_module(device).device_count()
    return [torch.device(device.type, index) for index in range(count)]
