"""Finds which kernels an operator of a function launches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from unstall.guest import active, device
from unstall.guest.steps import ignoring_steps
from unstall.numbers.run import called
from unstall.numbers.ways import Way
from unstall.rounding.operators import Operators, as_it_is
from unstall.rounding.samples import Kept

_MARK = "unstall operator "
_NOT_NAMES = re.compile(r"^void |\(anonymous namespace\)::|<unnamed>::")
_CPU = DeviceType.CPU
_ALL_EVENTS: dict[str, Any] = (
    {"acc_events": True} if "acc_events" in signature(profile).parameters else {}
)  # or newer ones warn
_NO_KERNEL = ("Memcpy", "Memset", _MARK)  # torch shows a mark on the device, too


def kernels_of(taken: Way, at: int) -> tuple[str, ...]:
    """Runs a function once more under torch.profiler, and returns the names of the kernels that one
    of its operators launches.

    Args:
        taken: The function and its arguments.
        at: Which operator: the index of its result among the results that `run` stores.

    Returns:
        Names without template parameters and arguments. Empty if there is no GPU, or if the program
        is already profiled or recorded.
    """
    if not torch.cuda.is_initialized() or device.profiler_is_on() or active.current() is not None:
        return ()
    kept = Kept()

    def marked(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        with record_function(f"{_MARK}{len(kept)}"):
            return as_it_is(func, args, kwargs)

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with ignoring_steps(), profile(activities=activities, **_ALL_EVENTS) as profiled:
        called(taken, Operators(kept.of_operator, marked))
        torch.cuda.synchronize()
    marks = {
        int(event.name.removeprefix(_MARK)): event  # the last one of a number: those before keep no result
        for event in sorted(profiled.events(), key=lambda event: event.time_range.start)
        if event.name.startswith(_MARK) and event.device_type == _CPU
    }
    before = [number for number in marks if number <= at]
    found = (short_name(name) for name in _kernels(marks[max(before)])) if before else ()
    return tuple(dict.fromkeys(name for name in found if not name.startswith(_NO_KERNEL)))


def _kernels(event: Any) -> Iterator[str]:
    yield from (kernel.name for kernel in event.kernels)
    for child in event.cpu_children:
        yield from _kernels(child)


def short_name(kernel: str) -> str:
    """Returns a kernel's name without its return type, template parameters and arguments."""
    outside: list[str] = []
    depth = 0
    for letter in _NOT_NAMES.sub("", kernel):
        if letter == "(" and not depth and outside:
            break
        depth += (letter in "<(") - (letter in ">)")
        if not depth and letter not in ">)":
            outside.append(letter)
    return "".join(outside).strip().rpartition(" ")[2] or kernel
