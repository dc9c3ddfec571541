"""`compare`: which of several functions is the fastest, if any is, and whether they compute the same.

The functions run by turns, in rounds of random order, until each is known to be within a margin of the first, or beyond
it (`rounds.py`); what they return is compared before (`agreement.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np

from unstall.bench.adapters import Adapter, adapter_for
from unstall.bench.agreement import Agreement, agreement, in_float64
from unstall.bench.cache import Caching
from unstall.bench.call import Call
from unstall.bench.comparison import Candidate, Comparison, Comparisons
from unstall.bench.look import opened
from unstall.bench.measurement import Cache
from unstall.bench.randomness import same_randomness
from unstall.bench.rounds import MARGIN, Rounds, by_turns
from unstall.bench.statistics import Spread
from unstall.bench.turns import By, back_to_back_ns, takes
from unstall.bench.wording import precise
from unstall.errors import UsageError

_LAUNCH_BOUND = 1.3  # times the device's time

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
Inputs: TypeAlias = Mapping[Any, Any] | Sequence[Any]


class Options(TypedDict, total=False):
    """The keywords of `compare`."""

    kwargs: Mapping[str, Any] | None
    by: By | Literal["auto"]
    cache: Cache | Literal["auto"]
    check: bool
    rel_tolerance: float | None
    ulp: float | None
    same_within: float
    max_seconds: float
    num_threads: int | None
    seed: int
    label: str


@overload
def compare(functions: Functions, *args: Any, inputs: None = None, **options: Unpack[Options]) -> Comparison: ...
@overload
def compare(functions: Functions, *args: Any, inputs: Inputs, **options: Unpack[Options]) -> Comparisons: ...
def compare(
    functions: Functions,
    *args: Any,
    inputs: Inputs | None = None,
    kwargs: Mapping[str, Any] | None = None,
    by: By | Literal["auto"] = "auto",
    cache: Cache | Literal["auto"] = "auto",
    check: bool = True,
    rel_tolerance: float | None = None,
    ulp: float | None = None,
    same_within: float = MARGIN,
    max_seconds: float = 5.0,
    num_threads: int | None = None,
    seed: int = 0,
    label: str = "",
) -> Comparison | Comparisons:
    """Compare functions of the same arguments with the first of them.

    FAST and SLOW say that the interval of the ratio of a function's time to the first one's is on one side of 1,
    SAME that it is within `same_within` of 1 (1.5 %), UNCLEAR that `max_seconds` were not enough to tell.

    `inputs` are several arguments to compare at, by name or not: a tuple is all arguments of a call, anything else the
    one. `by` is the time to compare: "device" where there is one, else "wall"; `cache` is "cold" on a device and "hot"
    on the host. With `check`, results must agree within `ulp` units in the last place or within `rel_tolerance`, or as
    `agreement` says; what does not agree is never the best. Raises UsageError for what cannot be compared.
    """
    if not functions or not all(callable(fn) for fn in functions.values()):
        raise UsageError('compare takes functions by name: compare({"a": f, "b": g}, x)')
    if not 0 < same_within < 1:
        raise UsageError(f"same_within={same_within}: give a fraction, such as 0.015 for 1.5 %")

    def at(arguments: tuple[Any, ...], name: str) -> Comparison:
        calls = {each: Call(fn, arguments, dict(kwargs or {})) for each, fn in functions.items()}
        taken = [value for call in calls.values() for _, value in call.inputs()]
        with adapter_for(taken).threads(num_threads):
            agreements = _agreements(calls, rel_tolerance, ulp) if check and len(calls) > 1 else {}
            # Of functions that make their own arrays only what they return says where.
            adapter = adapter_for([*taken, *(value for _, value in opened(next(iter(calls.values()))()))])
            rounds, taken_by, held = _by_turns(list(calls.values()), adapter, by, cache, same_within, max_seconds, seed)
            notes = _launch_bound(calls, rounds, adapter) if taken_by == "device" else ()
        return Comparison(
            label=name,
            candidates=_candidates(list(calls), rounds, agreements, same_within),
            by=taken_by,
            cache=held,
            margin=same_within,
            rounds=rounds.times.shape[1],
            stopped=rounds.stopped,
            notes=notes,
            device_name=adapter.device_name,
            versions=adapter.versions(),
        )

    if inputs is None:
        return at(args, label)
    found = []
    for name, value in _named(inputs):
        found.append(at((*args, *(value if isinstance(value, tuple) else (value,))), name))
    if not found:
        raise UsageError("inputs: there is none to compare at")
    return Comparisons(tuple(found), label)


def _by_turns(
    calls: list[Call],
    adapter: Adapter,
    by: By | Literal["auto"],
    cache: Cache | Literal["auto"],
    margin: float,
    seconds: float,
    seed: int,
) -> tuple[Rounds, By, Cache]:
    if by not in ("auto", "device", "wall", "throughput"):
        raise UsageError(f'by={by!r} is none of "device", "wall" and "throughput"')
    ways: tuple[By, ...] = (("device", "wall") if adapter.asynchronous else ("wall",)) if by == "auto" else (by,)
    for way in ways:
        held: Cache = ("cold" if way == "device" else "hot") if cache == "auto" else cache
        if cache == "auto" and held == "cold" and not adapter.cache_bytes:
            held = "hot"
        candidates = [Caching(call, held, adapter) for call in calls]
        try:
            take = takes(candidates, adapter, way)
        except UsageError:
            if way == ways[-1]:
                raise
            continue
        return by_turns(take, len(calls), margin=margin, max_seconds=seconds, seed=seed), way, held
    raise AssertionError


def _launch_bound(calls: Mapping[str, Call], rounds: Rounds, adapter: Adapter) -> tuple[str, ...]:
    """A sentence for each function of which the device's time is not what a program sees."""
    notes = []
    for one, (name, call) in enumerate(calls.items()):
        device = float(np.median(rounds.times[one]))
        seen = back_to_back_ns(Caching(call, "hot", adapter), adapter)
        if seen > _LAUNCH_BOUND * device:
            notes.append(
                f"{name} is launch-bound: back to back a call takes {precise(seen)}, of which the device works for "
                f'{precise(device)}. Compare by="throughput", too'
            )
    return tuple(notes)


def _agreements(calls: Mapping[str, Call], rel_tolerance: float | None, ulp: float | None) -> dict[str, Agreement]:
    """Each call on copies of the arguments, from the same state of random numbers, against the first."""
    (_, first), *others = calls.items()
    reference = _result(first)
    with same_randomness():
        exact = in_float64(first.fn, first.args, first.kwargs)
    return {
        name: agreement(_result(call), reference, exact=exact, rel_tolerance=rel_tolerance, ulp=ulp)
        for name, call in others
    }


def _result(call: Call) -> Any:
    """What the call returns, kept as it is even if a later call writes to the same memory."""
    with same_randomness():
        result = replace(call, args=_copied(call.args), kwargs=_copied(dict(call.kwargs)))()
        return _copied(result)


def _copied(value: Any) -> Any:
    adapter = adapter_for([value])
    if adapter.holds(value):
        return adapter.copied(value)
    if type(value) is dict:
        return {key: _copied(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _candidates(
    names: list[str], rounds: Rounds, agreements: Mapping[str, Agreement], margin: float
) -> tuple[Candidate, ...]:
    right = [one for one, name in enumerate(names) if name not in agreements or agreements[name].agrees]
    spreads = [Spread.of(times) for times in rounds.times]
    fastest = min(right, key=lambda one: spreads[one].median)
    return tuple(
        Candidate(
            name=name,
            time=spreads[one],
            ratio=rounds.ratio(one, 0),
            answer=rounds.answer(one, 0, margin) if one else None,
            best=one in right and (one == fastest or rounds.answer(one, fastest, margin) != "SLOW"),
            agreement=agreements.get(name),
        )
        for one, name in enumerate(names)
    )


def _named(inputs: Inputs) -> list[tuple[str, Any]]:
    if isinstance(inputs, Mapping):
        return [(str(name), value) for name, value in inputs.items()]
    return [(_shown(value), value) for value in inputs]


def _shown(value: Any) -> str:
    """An array by its shape and type, anything else as it prints."""
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{'x'.join(map(str, shape)) or 'scalar'} {str(dtype).removeprefix('torch.')}"
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:23]}…"
