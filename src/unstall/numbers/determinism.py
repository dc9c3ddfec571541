"""Finds what torch's deterministic mode (`torch.use_deterministic_algorithms`) changes for a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch

from unstall.numbers.run import run
from unstall.numbers.times import cost_of
from unstall.numbers.ways import Way
from unstall.rounding.judge import Judge

_CALL = "torch.use_deterministic_algorithms(True)"


def about_determinism(way: Callable[[], Way], *, one_at_a_time: bool) -> str:
    """Runs a function in torch's deterministic mode. Returns sentences about the effect of this
    mode.

    The sentences say whether all runs give the same bits, and how much longer the function takes.
    If torch raises an error in this mode, the sentence quotes the error.

    Args:
        way: Prepares the function and its arguments. It is called anew for each run.
        one_at_a_time: Whether each operator waits for the device, so that streams do not overlap.
    """
    once = partial(run, one_at_a_time=one_at_a_time)
    try:
        with _deterministic():
            one, other = once(way()), once(way())
    except RuntimeError as error:
        return f"{_CALL} raises: {_first_sentence(str(error))}"
    if not Judge(one, ()).compare(other).equal:
        return f"{_CALL} does not help: it still gives other bits each time."
    return f"{_CALL} makes it the same bits each time." + cost_of("That takes", way, nullcontext, _deterministic)


@contextmanager
def _deterministic() -> Iterator[None]:
    """Returns a context manager that turns torch's deterministic mode on within its block.

    Unlike `torch.use_deterministic_algorithms`, this does not change the settings of torch.compile.
    """
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def _first_sentence(text: str) -> str:
    return text.partition("\n")[0].partition(". ")[0].removesuffix(".") + "."
