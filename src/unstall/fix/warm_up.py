"""`warm_up`: runs the largest inputs first. The memory that the caching allocator reserves for these inputs is large
enough for all smaller inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
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
"""The requests that one call of a function makes to torch's caching allocator, in order. Each request is a tuple:
"alloc" or "free", the address of the memory, its size in bytes, and the number of the stream."""


@dataclass(frozen=True, slots=True)
class WarmUpStats(Printed):
    """Statistics of a `warm_up`. A model of the caching allocator predicts the reserved memory. The model starts with
    an empty cache. A prediction is None if memory was not recorded, or if memory runs out in the model.

    Attributes:
        calls: The number of calls of the function.
        largest_bytes: The bytes of the tensors in the largest input. 0 if the inputs have no tensors.
        reserved_bytes: The bytes that the allocator reserves if the largest input comes first.
        reserved_rising_bytes: The bytes that the allocator reserves if the smallest input comes first. None if there is
            only one input.
        peak_bytes: The largest number of bytes that are allocated at the same time.
        note: A remark. "" if there is none.
    """

    calls: int
    largest_bytes: int
    reserved_bytes: int | None
    reserved_rising_bytes: int | None
    peak_bytes: int | None
    note: str

    @property
    def text(self) -> str:
        text = counted(self.calls, "call")
        if self.largest_bytes:
            text += f", inputs of up to {size(self.largest_bytes)}"
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

    The largest input is the one with the most bytes in its tensors. Between inputs with equal bytes, it is the one with
    the largest product of its whole numbers. So `warm_up(step, 8, 16, 64)` calls `step(64)` first. If a later call took
    more memory than the first, the statistics say so.

    Several threads may call `warm_up` at the same time, but then each call counts the others' memory, too.

    Args:
        fn: The function to call.
        *largest_inputs: One input for each call of `fn`. A tuple has all positional arguments; any other object is the
            only argument. The tensors and numbers in an input may be in nested containers.

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
    ordered = sorted(largest_inputs, key=lambda value: (_bytes_of(value), _product(value)), reverse=True)
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
    # "Smallest first" is the order of the memory that calls took, even if the inputs do not show which is the largest.
    taken = [_most_allocated(trace) for trace in traces]
    rising = sorted(range(len(traces)), key=lambda call: (taken[call], -call))
    without, _ = replay_reserved([traces[call] for call in rising], total)
    return WarmUpStats(
        len(ordered), largest, with_it, without if len(ordered) > 1 else None, peak, _note(ordered, taken)
    )


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


def _note(ordered: list[object], taken: list[int]) -> str:
    """Returns a note if the inputs do not show what the order saves, and else "". `taken` has, for each call in order,
    the most bytes that it held at a time."""
    if len(ordered) == 1:
        return "pass smaller inputs too, and warm_up() can say what this order saves"
    most = max(range(len(taken)), key=lambda call: (taken[call], -call))
    if taken[most] <= taken[0]:
        return ""
    return (
        f"call {most + 1} took {size(taken[most])}, more than the first call ({size(taken[0])}), so smaller calls ran "
        "before it: call warm_up() with its input alone"
    )


def _most_allocated(trace: Trace) -> int:
    """Returns the most bytes that the requests of one call held at a time."""
    held: dict[int, int] = {}
    now = most = 0
    for action, address, count, _ in trace:
        if action == "alloc":
            held[address] = count
            now += count
            most = max(most, now)
        else:
            now -= held.pop(address, 0)
    return most


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


def _product(value: object) -> int:
    """Returns the product of the whole numbers in nested containers; 0 if there are none. A shape is such a product."""
    found = list(_whole_numbers(value))
    return math.prod(found) if found else 0


def _whole_numbers(value: object) -> Iterable[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, Mapping):
        yield from _whole_numbers(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _whole_numbers(item)


def _all_like(device: torch.device) -> list[torch.device]:
    """Returns all devices of the same type as `device`. The warmed-up function may use the random number generator of
    any of these devices."""
    if not is_there(device):
        return []
    count = torch.get_device_module(device).device_count()
    return [torch.device(device.type, index) for index in range(count)]
