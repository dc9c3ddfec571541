"""Measures how much longer a function takes in one setting of torch than in another. Runs in the
two settings alternate.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import torch

from unstall.numbers.run import called
from unstall.numbers.streams import wait_for_device
from unstall.numbers.ways import Way

_ROUNDS, _FEWEST = 7, 3
_MOST_S = 2.0
Setting: TypeAlias = Callable[[], AbstractContextManager[None]]


def cost_of(takes: str, way: Callable[[], Way], usual: Setting, other: Setting) -> str:
    """Measures a function in two settings of torch, and returns a sentence about the times.

    An example of the sentence is "Turning it off takes 1.8 times as long: 2.1 → 3.8 ms (median of
    7)." Returns "" if the measurement would take more than about two seconds.

    Args:
        takes: The beginning of the sentence, such as "Turning it off takes".
        way: Prepares the function. It is called anew for each setting.
        usual: Returns a context manager. The usual setting is in force within its block.
        other: Returns a context manager. The other setting is in force within its block.
    """
    times = _in_turn([(usual, way()), (other, way())])
    if times is None:
        return ""
    before, after = (statistics.median(each) for each in times)
    return f" {takes} {after / before:.2g} times as long: {before:.2g} → {after:.2g} ms (median of {len(times[0])})."


def _in_turn(cases: Sequence[tuple[Setting, Way]]) -> list[list[float]] | None:
    """Runs the function in each setting in turn, for several rounds. Returns the times in ms, one
    list per setting. Returns None if three rounds would take too long.
    """
    began = time.perf_counter()
    for setting, taken in cases:  # warm-up
        with setting():
            _ms(taken)
    warm = time.perf_counter()
    if warm - began > _MOST_S:
        return None
    times: list[list[float]] = [[] for _ in cases]
    for number in range(_ROUNDS):
        for (setting, taken), its in zip(cases, times, strict=True):
            with setting():
                its.append(_ms(taken))
        done = number + 1
        each = (time.perf_counter() - warm) / done
        if done % 2 and time.perf_counter() - began + 2 * each > _MOST_S:
            return times if done >= _FEWEST else None
    return times


def _ms(taken: Way) -> float:
    """Returns the time in ms of a call of the function and its backward pass, up to the end of
    their work on the device.
    """
    wait_for_device()
    if not torch.cuda.is_initialized():
        began = time.perf_counter()
        called(taken, None, torch.ones_like)
        return (time.perf_counter() - began) * 1e3
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    called(taken, None, torch.ones_like)
    end.record()
    wait_for_device()
    return float(start.elapsed_time(end))
