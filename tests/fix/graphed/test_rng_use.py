"""What another thread draws from the host's generators is not held against a function, and what it draws itself is."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from fix.graphed.harness import on_tape
from fix.graphed.tape import TapeDevice
from processes import succeeded

from unstall.fix.graphs.examine.observed_call import ObservedCall
from unstall.fix.graphs.examine.observing import observed


class _Elsewhere(TapeDevice):
    """Whose generator is not the host's."""

    type = "xpu"

    def __init__(self) -> None:
        super().__init__()
        self._own = torch.Generator()

    def generator(self) -> torch.Generator:
        return self._own


@contextmanager
def _another_thread(draw: Callable[[], object]) -> Iterator[None]:
    """Which draws all the time."""
    over = threading.Event()

    def draws() -> None:
        while not over.wait(1e-4):
            draw()

    thread = threading.Thread(target=draws)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _draws_of(function: Callable[[], object]) -> tuple[list[str], list[str]]:
    def of_draws(reasons: list[object]) -> list[str]:
        return [str(reason) for reason in reasons if str(reason).startswith("it draws")]

    observed(function, [], _Elsewhere())  # which imports what the next one needs
    seen: ObservedCall = observed(function, [], _Elsewhere())[1]
    return of_draws(list(seen.refusals)), of_draws(list(seen.uncertain))


def _long(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.05)
    return x.exp()


def test_what_another_thread_draws_from_torchs_generator_is_its_own() -> None:
    with _another_thread(lambda: torch.rand(3)):
        assert _draws_of(lambda: _long(torch.ones(2))) == ([], [])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(()).item(),
        lambda: torch.randperm(4),
        lambda: torch.nn.functional.dropout(torch.ones(8)),
        lambda: torch.empty(3).normal_(generator=torch.default_generator),
        lambda: torch.set_rng_state(torch.Generator().manual_seed(time.time_ns() % 2**30).get_state()),
        lambda: random.shuffle([1, 2, 3]),
    ],
)
def test_what_a_function_draws_is_seen_beside_another_thread(draw: Callable[[], object]) -> None:
    with _another_thread(lambda: torch.rand(3)):
        certain, _ = _draws_of(draw)
    assert len(certain) == 1


@pytest.mark.parametrize("draw", ["numpy.random.rand", "random.random"])
def test_who_drew_is_certain_where_no_other_thread_is(draw: str) -> None:
    """In a process of its own: the tests' own runner may have another thread."""
    program = f"""
import random, numpy
from fix.graphed.test_rng_use import _draws_of
certain, doubts = _draws_of(lambda: {draw}())
assert (len(certain), doubts) == (1, []), (certain, doubts)
"""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    succeeded([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path})


def test_what_a_pool_draws_for_a_function_is_in_doubt() -> None:
    with ThreadPoolExecutor(1) as pool, _another_thread(time.monotonic):
        pool.submit(time.sleep, 0).result()
        _, doubts = _draws_of(lambda: pool.submit(torch.rand, 3).result())
    assert len(doubts) == 1


@pytest.mark.parametrize("draw", [np.random.rand, partial(random.random)])
def test_what_is_drawn_in_c_is_looked_at_again(draw: Callable[[], object]) -> None:
    with _another_thread(time.monotonic):
        fast = on_tape(lambda x: x * float(draw()), strict=False)  # type: ignore[arg-type]
        with pytest.warns(RuntimeWarning, match="or another thread did whenever a call was observed"):  # noqa: PT031
            for _ in range(11):
                fast(torch.ones(2))
    assert (fast.stats().calls, fast.stats().captures) == (11, 0)


def test_another_thread_that_draws_now_and_then_costs_a_few_looks() -> None:
    fast = on_tape(_long, strict=True)
    with _another_thread(np.random.rand):
        for _ in range(5):
            fast(torch.ones(2))
    for _ in range(3):
        fast(torch.ones(2))
    assert fast.stats().hits == 2


def test_after_too_many_looks_another_is_taken_when_calls_have_doubled() -> None:
    fast = on_tape(_long, strict=False)
    with _another_thread(np.random.rand), pytest.warns(RuntimeWarning, match="or another thread did") as said:  # noqa: PT031
        for _ in range(22):  # refused at the 11th call, and looked at again at the 22nd
            fast(torch.ones(2))
    assert len(said) == len(fast.stats().refusals) == 1
    for _ in range(24):
        fast(torch.ones(2))
    assert fast.stats().hits == 2
    assert fast.stats().refusals == ()
