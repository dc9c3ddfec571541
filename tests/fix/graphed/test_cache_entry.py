"""A cache entry is the state machine that is drawn: its table, and all that calls make of it."""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial

import numpy as np
import pytest
import torch
from fix.graphed.harness import on_tape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unstall.fix.graphs import cache_entry
from unstall.fix.graphs.cache_entry import TRANSITIONS, CacheEntry, State, Trigger

Transition = tuple[State, Trigger, State]
Cell = tuple[int, int]
Script = list[tuple[str, int]]
"""What calls do, and how many in a row."""

_LEFT, _RIGHT, _UP, _DOWN = (0, -1), (0, 1), (-1, 0), (1, 0)
_OPEN = {
    "─": {_LEFT, _RIGHT},
    "│": {_UP, _DOWN},
    "┌": {_RIGHT, _DOWN},
    "┐": {_LEFT, _DOWN},
    "└": {_RIGHT, _UP},
    "┘": {_LEFT, _UP},
    "┬": {_LEFT, _RIGHT, _DOWN},
    "┴": {_LEFT, _RIGHT, _UP},
    "▶": {_LEFT},
    "◀": {_RIGHT},
    "▲": {_DOWN},
    "▼": {_UP},
}
_POINTS = {"▶": _RIGHT, "◀": _LEFT, "▲": _UP, "▼": _DOWN}


def drawn(text: str) -> set[Transition]:
    """The transitions of a drawing: lines lead from each state that they touch to the one that an arrow points at."""
    states: dict[Cell, State] = {}
    lines: dict[Cell, str] = {}
    labels: dict[Cell, list[Trigger]] = {}
    for row, line in enumerate(text.splitlines()):
        for box in re.finditer(r"\[ *([A-Z]+) *\]", line):
            states |= {(row, column): State[box[1]] for column in range(*box.span())}
        for label in re.finditer(r"(?<=─) ([a-z, ]+) (?=─)", line):
            labels[row, label.start()] = [Trigger(each) for each in label[1].split(", ")]
            line = line[: label.start()] + "─" * len(label[0]) + line[label.end() :]
        lines |= {(row, column): each for column, each in enumerate(line) if each in _OPEN}
    found: set[Transition] = set()
    while lines:
        events, sources, targets = _line(lines, states, labels)
        found |= {(source, event, target) for source in sources for event in events for target in targets}
    return found


def _line(
    lines: dict[Cell, str], states: dict[Cell, State], labels: dict[Cell, list[Trigger]]
) -> tuple[list[Trigger], set[State], set[State]]:
    """Takes one connected line: its events, the states that it leaves, and those that it points at."""
    events: list[Trigger] = []
    sources: set[State] = set()
    targets: set[State] = set()
    todo = [next(iter(lines))]
    while todo:
        at = todo.pop()
        mark = lines.pop(at, None)
        if mark is None:
            continue
        events += labels.get(at, [])
        if mark in _POINTS:
            targets.add(states[at[0] + _POINTS[mark][0], at[1] + _POINTS[mark][1]])
        for down, right in _OPEN[mark]:
            beside = at[0] + down, at[1] + right
            if beside in states:
                sources.add(states[beside])
            elif (-down, -right) in _OPEN.get(lines.get(beside, ""), ()):
                todo.append(beside)
    return events, sources, targets


_BOTH = """
    [ UNSEEN ]── clean, captured ──▶[ OBSERVED ]
       ▲                                  │
       └────────── evicted ───────────────┘
"""


def test_a_drawing_is_read_line_by_line() -> None:
    assert drawn(_BOTH) == {
        (State.UNSEEN, Trigger.CLEAN, State.OBSERVED),
        (State.UNSEEN, Trigger.CAPTURED, State.OBSERVED),
        (State.OBSERVED, Trigger.EVICTED, State.UNSEEN),
    }


def test_the_drawn_transitions_are_the_tables() -> None:
    assert cache_entry.__doc__ is not None
    assert drawn(cache_entry.__doc__) == {(state, event, after) for (state, event), after in TRANSITIONS.items()}


_does: ContextVar[str] = ContextVar("_does", default="plain")  # held in C: no guard of the function's


class Driven:
    """A graphed function whose calls follow a script, with all moves of its entries."""

    def __init__(self, max_graphs: int) -> None:
        self.taken: list[Transition] = []
        self.entries: dict[int, CacheEntry] = {}
        self._scale = [1.0]
        self._counts = {"calls": 0}
        self._fast = on_tape(self._function(), strict=False, max_graphs=max_graphs)

    def _function(self) -> object:
        scale, counts, draw = self._scale, self._counts, partial(np.random.rand)

        def function(x: torch.Tensor) -> torch.Tensor:
            match _does.get():
                case "writes" | "other value, writes":
                    counts["calls"] += 1
                case "draws":
                    draw()
                case "waits":
                    x.sum().item()
                case "raises":
                    raise ValueError("by the script")
            return x.exp().sin() * scale[0]

        return function

    def run(self, script: Script) -> None:
        move = CacheEntry._move

        def noted(entry: CacheEntry, event: Trigger) -> None:
            before = self.entries.setdefault(id(entry), entry).state
            move(entry, event)
            self.taken.append((before, event, entry.state))

        with pytest.MonkeyPatch.context() as patch, _another_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(CacheEntry, "_move", noted)
            for what, count in script:
                for _ in range(count):
                    self._call(what)

    def _call(self, what: str) -> None:
        if what.startswith("other value"):
            self._scale[0] += 1.0
        x = torch.ones(3 if what == "other shape" else 2)
        token = _does.set(what)
        try:
            with contextlib.suppress(ValueError):
                assert torch.equal(self._fast(x), x.exp().sin() * self._scale[0])
        finally:
            _does.reset(token)


@contextlib.contextmanager
def _another_thread() -> Iterator[None]:
    """Beside which nobody can tell who used a random generator in C."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


_CALLS = ("plain", "other value", "other value, writes", "other shape", "writes", "draws", "waits", "raises")


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(_CALLS), st.integers(1, 12)), max_size=6), st.integers(1, 3))
def test_no_calls_take_an_entry_another_way(script: Script, max_graphs: int) -> None:
    driven = Driven(max_graphs)
    driven.run([("plain", 2), *script])
    assert {*driven.taken} <= drawn(cache_entry.__doc__ or "")
    for entry in driven.entries.values():  # nothing else has set a state
        assert entry.state in {after for _, _, after in driven.taken}
        assert (entry.state in (State.REFUSED, State.DEFERRED)) <= (not entry.graphs)
        assert (entry.state is State.SERVING) <= bool(entry.graphs)


SERVED: Script = [("plain", 3)]
LEADS_TO: dict[tuple[State, Trigger], Script] = {
    (State.UNSEEN, Trigger.CLEAN): [("plain", 2)],
    (State.UNSEEN, Trigger.UNUSABLE): [("plain", 1), ("writes", 1)],
    (State.UNSEEN, Trigger.UNCERTAIN): [("plain", 1), ("draws", 10)],
    (State.UNSEEN, Trigger.REFUSED): [("plain", 1), ("waits", 1)],
    (State.UNSEEN, Trigger.EVICTED): [*SERVED, ("other value, writes", 1), ("other shape", 2)],
    (State.DEFERRED, Trigger.CALLS_DOUBLED): [("plain", 1), ("draws", 10), ("plain", 11)],
    (State.OBSERVED, Trigger.CAPTURED): SERVED,
    (State.OBSERVED, Trigger.GUARDS_FAILED): [("plain", 2), ("other value", 1)],
    (State.OBSERVED, Trigger.REFUSED): [("plain", 2), ("raises", 1)],
    (State.OBSERVED, Trigger.EVICTED): [*SERVED, ("other value", 1), ("other shape", 2)],
    (State.SERVING, Trigger.GUARDS_FAILED): [*SERVED, ("other value", 1)],
    (State.SERVING, Trigger.REFUSED): [*SERVED, *[("other value", 1), ("plain", 1)] * 3],
    (State.SERVING, Trigger.EVICTED): [*SERVED, ("other shape", 2)],
}


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda pair: f"{pair[0].name}, {pair[1].value}")
def test_each_transition_is_taken(transition: tuple[State, Trigger]) -> None:
    driven = Driven(max_graphs=1)
    driven.run(LEADS_TO[transition])
    assert (*transition, TRANSITIONS[transition]) in driven.taken


def test_captures_that_serve_next_to_nothing_end_with_any_number_of_graphs() -> None:
    driven = Driven(max_graphs=1)
    driven.run([*SERVED, *[("other value", 1), ("plain", 1)] * 20])
    assert [each for each in driven.taken if each[1] is Trigger.CAPTURED] == [
        (State.OBSERVED, Trigger.CAPTURED, State.SERVING)
    ] * 3
