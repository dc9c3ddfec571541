"""Captures on several streams compute what one stream computes, in every order that their events allow."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fix.graphed.harness import on_tape
from fix.graphed.tape import TapeDevice
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

# Each takes tensors by place and gives one more, or writes into one.
_OPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor | None]] = {
    "add": lambda a, b: a + b,
    "matmul": lambda a, b: a @ b,
    "view": lambda a, b: a.t(),
    "row": lambda a, b: a[1:2].expand(4, 4),
    "write": lambda a, b: _written(a, b),
    "write a view": lambda a, b: _written(a[0], b[1]),
    "draw": lambda a, b: a + torch.rand_like(b),
    "fill": lambda a, b: _written(a[:, 1], torch.zeros(4)),
}


def _written(a: torch.Tensor, b: torch.Tensor) -> None:
    a.mul_(0.5).add_(b.clone(), alpha=0.25)


_PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(_OPS)), st.integers(0, 99), st.integers(0, 99)), max_size=10)


def _run(program: list[tuple[str, int, int]], x: torch.Tensor, outside: torch.Tensor) -> list[torch.Tensor]:
    tensors = [x * 1, x + 1, outside]
    for name, a, b in program:
        made = _OPS[name](tensors[a % len(tensors)], tensors[b % len(tensors)])
        if made is not None:
            tensors.append(made)
    return [tensor.clone() for tensor in tensors]


@pytest.mark.slow
@examples(25)
@given(_PROGRAMS, st.integers(0, 10**6))
def test_any_program_computes_the_same(program: list[tuple[str, int, int]], seed: int) -> None:
    # A write into what is expanded is the program's own error.
    program = [step for step in program if step[0] != "row"] + [("row", 0, 0)]
    states, results = [], []
    for graphed in (False, True):
        outside = torch.linspace(-1, 1, 16).reshape(4, 4)

        def function(x: torch.Tensor, outside: torch.Tensor = outside) -> list[torch.Tensor]:
            return _run(program, x, outside)

        call: Any = on_tape(function, lanes=(3,), device=TapeDevice(seed)) if graphed else function
        torch.manual_seed(1)
        results.append([call(torch.full((4, 4), 0.1 * turn)) for turn in range(5)])
        states.append(outside)
        if graphed:
            assert call.stats().hits == 3
            assert [graph.note for graph in call.stats().graphs] == [""]
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0, equal_nan=True)


def _branches(x: torch.Tensor) -> torch.Tensor:
    left, right = x.exp(), x.tanh()
    for _ in range(4):
        left, right = left.sin() + 1, right.cos() + 2
    return left * right


def test_branches_are_faster_on_several_streams() -> None:
    fast = on_tape(_branches)
    for _ in range(4):
        fast(torch.ones(4))
    (graph,) = fast.stats().graphs
    assert graph.lanes > 1
    assert graph.parallel_seconds is not None
    assert graph.parallel_seconds < 0.7 * graph.serial_seconds


def test_a_chain_has_one_stream() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = x.sin()
        return x

    fast = on_tape(chain)
    for _ in range(4):
        fast(torch.ones(4))
    (graph,) = fast.stats().graphs
    assert (graph.lanes, graph.parallel_seconds) == (1, None)
    assert graph.note == "one stream: no branches worth a second"


def test_missing_waits_are_found_by_replaying() -> None:
    fast = on_tape(_branches, device=TapeDevice(forgets_waits=True))
    for seed in range(5):
        x = torch.full((4,), 0.1 * seed)
        assert torch.equal(fast(x), _branches(x))
    (graph,) = fast.stats().graphs
    assert (graph.lanes, graph.note) == (1, "one stream, since several gave other results")


@pytest.mark.parametrize("lanes", [(), (1,)])
def test_one_stream_can_be_asked_for(lanes: tuple[int, ...]) -> None:
    fast = on_tape(_branches, lanes=lanes)
    for _ in range(4):
        fast(torch.ones(4))
    assert fast.stats().graphs[0].lanes == 1


def test_another_run_than_the_traced_one_is_not_forked() -> None:
    hidden: Any = contextvars.ContextVar("hidden")
    hidden.set(iter([0, 0, 0, 0, 0, 1] * 50))

    def function(x: torch.Tensor) -> torch.Tensor:
        left, right = x.exp(), x.tanh()
        return left + right if next(hidden.get()) == 0 else right + left.sin().cos()

    fast = on_tape(function, strict=False, verify=False)
    for _ in range(4):
        fast(torch.ones(2))
    assert fast.stats().captures == 1
