"""`compare`: finds the fastest of several functions, and checks whether their results agree.

First, `compare` compares the results of the functions (`comparing/agreement.py`). Then it calls the
functions in rounds (`comparing/rounds.py`). In each round, the functions run one after the other in
random order. The rounds end when it is known for each function whether its time is the same as the
first function's, within a margin.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypedDict, Unpack, get_args, overload

import numpy as np

from unstall.errors import UsageError
from unstall.guest.rng import RandomStates, devices_in_use
from unstall.measuring.adapters import Adapter, adapter_for, copied
from unstall.measuring.amounts import seconds_of, share_of
from unstall.measuring.cache import Caching
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.calls.inspection import Inspection, inspect_call, opened, sampled_inputs
from unstall.measuring.comparing.agreement import Agreement, agreement, in_float64
from unstall.measuring.comparing.result_arrays import tensors_of
from unstall.measuring.comparing.rounds import MARGIN, Rounds, by_turns
from unstall.measuring.comparing.turns import By, takes
from unstall.measuring.comparing.which_time import TimeChoice, choose, launch_bound, probe, usual_cache
from unstall.measuring.comparison import Candidate
from unstall.measuring.measurement import Cache
from unstall.measuring.progress import begin
from unstall.measuring.shown import Comparisons, ShownComparison
from unstall.measuring.statistics import Spread
from unstall.measuring.verdicts.of_inspection import of_inspection
from unstall.measuring.virtual_gpu import is_clock_virtual
from unstall.measuring.wording import names_of

_CALLS = 20  # calls of each function that must fit into the time of a full comparison
_NOT_COMPUTED = "the virtual GPU skips numerics: there are no results that could be compared"

Functions: TypeAlias = Mapping[str, Callable[..., object]]
Inputs: TypeAlias = Mapping[object, object] | Sequence[object]


class CompareOptions(TypedDict, total=False):
    """The keyword arguments of `compare`."""

    kwargs: Mapping[str, object] | None
    by: By | Literal["auto"]
    cache: Cache | Literal["auto"]
    check: bool
    rel_tolerance: float | None
    ulp: float | None
    same_within: float | str
    max_seconds: float
    num_threads: int | None
    seed: int
    label: str


@overload
def compare(
    functions: Functions, *args: object, inputs: None = None, **options: Unpack[CompareOptions]
) -> ShownComparison: ...
@overload
def compare(functions: Functions, *args: object, inputs: Inputs, **options: Unpack[CompareOptions]) -> Comparisons: ...
def compare(
    functions: Functions,
    *args: object,
    inputs: Inputs | None = None,
    kwargs: Mapping[str, object] | None = None,
    by: By | Literal["auto"] = "auto",
    cache: Cache | Literal["auto"] = "auto",
    check: bool = True,
    rel_tolerance: float | None = None,
    ulp: float | None = None,
    same_within: float | str = MARGIN,
    max_seconds: float = 5.0,
    num_threads: int | None = None,
    seed: int = 0,
    label: str = "",
) -> ShownComparison | Comparisons:
    """Calls several functions with the same arguments. Compares their times and results with the times and results of
    the first function.

        print(unstall.compare({"softmax": f, "by hand": g}, x))

    The functions run in rounds. In each round, the functions run one after the other in random order. The rounds end
    when it is known for each function whether its time is within a margin of the first function's time. For each
    function, the ratio of the two times has a 95 % confidence interval. If the interval lies within the margin, the
    function is SAME. Otherwise, it is FAST if the interval lies below 1, and SLOW if the interval lies above 1. If the
    interval contains 1 when the time limit is reached, the function is UNCLEAR.

    Several threads may call it at the same time, but then each measures the others' work, too.

    Args:
        functions: A mapping from names to functions. The first function is the reference.
        *args: Positional arguments of every call. They may be arrays of torch, CuPy, JAX or NumPy, of any shape and
            dtype, or any other objects.
        inputs: Several inputs with which to compare the functions: a mapping from names to inputs, or a sequence of
            inputs. An input is added to the arguments `args`. If an input is a tuple, each of its items is one
            argument. Any other input is one argument.
        kwargs: Keyword arguments of every call.
        by: The time that is compared. "device": the time on the device. "wall": the time of a call including the wait
            for its results. "throughput": the time per call if many calls follow each other without waits. "auto":
            "wall" if no function uses a device; "throughput" if only some of the functions use a device, or if one of
            them is launch-bound; "device" otherwise.
        cache: The cache state before each call: "cold", "hot" or "rotate", as in `bench`. "auto" means "cold" if the
            time on the device is compared, and "hot" otherwise.
        check: Whether to compare the results, too. A function whose results do not agree with the reference is never
            the best.
        rel_tolerance: The largest allowed difference, as a fraction of the largest magnitude in the array.
        ulp: The largest allowed difference, in units in the last place. If neither `ulp` nor `rel_tolerance` is given,
            results agree if rounding explains their difference.
        same_within: The margin within which two times are the same: a number such as 0.015, or a text such as "1.5%".
        max_seconds: The time limit in s for each input.
        num_threads: The number of CPU threads that torch or NumPy uses. By default, the number is not changed.
        seed: The seed of the random order of the functions.
        label: A title for the table.

    Returns:
        A comparison. If `inputs` is given, a `Comparisons` with one comparison for each input. Times are in ns.

    Raises:
        UsageError: The functions cannot be compared, or an option is invalid.
        Exception: Exceptions of a function are raised unchanged.
    """
    if not isinstance(functions, Mapping) or not functions or not all(map(callable, functions.values())):
        raise UsageError('compare takes functions by name: compare({"a": f, "b": g}, x)')
    same_within, max_seconds = share_of(same_within, "same_within"), seconds_of(max_seconds, "max_seconds")
    if by not in ("auto", *get_args(By)):
        raise UsageError(f'by={by!r} is none of "device", "wall" and "throughput"')
    rows = [("", args)] if inputs is None else [(name, (*args, *value)) for name, value in _named(inputs)]
    if not rows:
        raise UsageError("inputs: there is none to compare at")
    calls = [
        {each: FunctionCall(fn, arguments, dict(kwargs or {})) for each, fn in functions.items()}
        for _, arguments in rows
    ]
    with adapter_for(_values(calls[0])).threads(num_threads):
        begin("the first calls")
        adapters, first_s = zip(*(_adapter(each) for each in calls), strict=True)
        begin("the results")
        seen = [
            _looked_at(each, adapter, took, rel_tolerance, ulp, max_seconds, check=check)
            for each, adapter, took in zip(calls, adapters, first_s, strict=True)
        ]
        brief = any(each.is_long(max_seconds) for each in seen)
        begin("which time to compare")
        found = []
        for row, choice in enumerate(_choices(calls, adapters, by, cache, brief=brief)):
            begin("calls by turns")
            rounds, kept = _by_turns(
                list(calls[row].values()), choice, cache, same_within, max_seconds, seed, seen[row]
            )
            bound = choice.by == "device" and not choice.because
            found.append(
                ShownComparison(
                    label=label if inputs is None else rows[row][0],
                    candidates=_candidates(list(functions), rounds, seen[row].agreements, same_within),
                    by=choice.by,
                    because=choice.because,
                    cache=kept,
                    margin=same_within,
                    rounds=rounds.times.shape[1],
                    stopped=rounds.stopped,
                    notes=(*seen[row].notes, *(_launch_bound(calls[row], rounds, choice.adapter) if bound else ())),
                    device_name=choice.adapter.device_name,
                    versions=choice.adapter.versions(),
                )
            )
    return found[0] if inputs is None else Comparisons(tuple(found), label)


def _adapter(calls: Mapping[str, FunctionCall]) -> tuple[Adapter, list[float]]:
    """Calls each function once.

    Returns (adapter, seconds). `adapter` is the adapter for the arguments and the results. `seconds` has, for each
    function, the time in s until its call returned.

    Raises:
        UsageError: A function returns a coroutine.
    """
    returned, took = [], []
    for name, call in calls.items():
        began = time.monotonic()
        result = call()
        took.append(time.monotonic() - began)
        if inspect.iscoroutine(result):
            result.close()
            raise UsageError(
                f"{name} returns a coroutine, of which nothing has run: compare functions that run it, such as "
                "lambda: asyncio.run(f(x))"
            )
        returned += [value for _, value in opened(result)]
    return adapter_for([*_values(calls), *returned]), took


def _choices(
    calls: list[dict[str, FunctionCall]],
    adapters: Sequence[Adapter],
    by: By | Literal["auto"],
    cache: Cache | Literal["auto"],
    *,
    brief: bool,
) -> Iterator[TimeChoice]:
    """Yields, for each input, which time to compare, and why. If all inputs are on one device, the
    choice is the same for all inputs.
    """
    if by != "auto":
        yield from (TimeChoice(by, "", adapter) for adapter in adapters)
    elif len({adapter.name for adapter in adapters}) == 1:
        yield from [choose(calls, adapters[0], cache, brief=brief)] * len(calls)
    else:
        yield from (choose([each], adapter, cache, brief=brief) for each, adapter in zip(calls, adapters, strict=True))


def _by_turns(
    calls: list[FunctionCall],
    choice: TimeChoice,
    cache: Cache | Literal["auto"],
    margin: float,
    seconds: float,
    seed: int,
    seen: _Seen,
) -> tuple[Rounds, Cache]:
    kept = usual_cache(choice.by, choice.adapter) if cache == "auto" else cache
    candidates = [Caching(call, kept, choice.adapter) for call in calls]
    take = takes(candidates, choice.adapter, choice.by, seen.each_s, brief=seen.is_long(seconds))
    noiseless = choice.adapter.virtual and is_clock_virtual()
    left = max(0.0, seconds - sum(seen.each_s))
    return by_turns(take, len(calls), margin=margin, max_seconds=left, seed=seed, noiseless=noiseless), kept


def _values(calls: Mapping[str, FunctionCall]) -> list[object]:
    return [value for call in calls.values() for _, value in call.inputs()]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The findings of one additional call of each function.

    Attributes:
        agreements: Maps the name of a function to the agreement of its result with the first function's result.
        notes: Sentences for the user about limits of the measured times.
        each_s: For each function, the time in s until a call returns, by the machine's clock. This time is the shorter
            of the times of two calls.
    """

    agreements: dict[str, Agreement]
    notes: list[str]
    each_s: list[float]  # the shorter of two calls, until return, by the machine's clock

    def is_long(self, seconds: float) -> bool:
        """Returns whether, for at least one function, fewer than 20 calls fit into `seconds`."""
        return any(_CALLS * each_s > seconds for each_s in self.each_s)


def _looked_at(
    calls: Mapping[str, FunctionCall],
    adapter: Adapter,
    first_s: list[float],
    rel_tolerance: float | None,
    ulp: float | None,
    seconds: float,
    *,
    check: bool,
) -> _Seen:
    """Calls each function once more, and compares its result with the result of the first function.

    If results are compared (`check`), each function gets copies of the arguments, and the random
    number generators are in the same state at the start of each function.
    """
    computed = check and adapter.computes
    agreements: dict[str, Agreement] = {}
    said: dict[str, list[str]] = {}
    each_s: list[float] = []
    reference = exact = noisy = None
    for number, (name, call) in enumerate(calls.items()):
        seen, took, result = _called(call, adapter, kept=computed and len(calls) > 1)
        each_s.append(min(took, first_s[number]))
        for verdict in of_inspection(seen, virtual=adapter.virtual):
            if verdict.serious:
                said.setdefault(f"{verdict.kind}: {verdict.text}", []).append(name)
        if computed and number:
            agreements[name] = agreement(
                result, reference, exact=exact, rel_tolerance=rel_tolerance, ulp=ulp, noisy=noisy
            )
        elif computed and len(calls) > 1:
            reference = result
            with same_randomness():
                exact = in_float64(call.fn, copied(call.args), copied(dict(call.kwargs)))
            noisy = _noisy(call, result, seconds)
        del result
    notes = [text if len(names) == len(calls) > 1 else f"{names_of(names)}: {text}" for text, names in said.items()]
    return _Seen(agreements, [*notes, *([_NOT_COMPUTED] if check and not adapter.computes else [])], each_s)


def _noisy(call: FunctionCall, result: object, seconds: float) -> Callable[[int], object] | None:
    """Returns a function that calls the reference function with random rounding errors in its
    operators. Its argument is the seed of the errors. Returns None if the reference's result has no
    torch tensors.

    Args:
        call: The reference function with its arguments.
        result: The result of the reference function.
        seconds: The time limit in s for all such calls together.
    """
    if not tensors_of(result):
        return None
    from unstall.measuring.comparing.noisy_calls import NoisyCalls

    def is_same(other: object) -> bool:
        return agreement(other, result, ulp=0).agrees

    return NoisyCalls(call, copied, same_randomness, is_same, seconds)


def _called(call: FunctionCall, adapter: Adapter, *, kept: bool) -> tuple[Inspection, float, object]:
    """Inspects one call. Returns `(findings, seconds, result)`: what was found, the time of the
    call in s, and a copy of the call's result.

    If `kept` is true, the function gets copies of its arguments. If it is false, nothing is copied,
    and `result` is None.
    """
    if kept:
        call = replace(call, args=copied(call.args), kwargs=copied(dict(call.kwargs)))
    results: list[object] = []
    took = 0.0

    def run() -> object:
        nonlocal took
        began = time.monotonic()
        result = call()
        took = time.monotonic() - began
        if kept:
            results.append(result)
        return result

    at_first = sampled_inputs(call, adapter)
    with same_randomness() if kept else nullcontext():
        seen = inspect_call(call, adapter, at_first, run, once=True)
        return seen, took, copied(results[0]) if kept else None


@contextmanager
def same_randomness() -> Iterator[None]:
    """Returns a context manager that saves the states of the random number generators, and restores
    them at the end of its block. So successive blocks draw the same random numbers. The generators
    are the default generators of Python, NumPy and torch.
    """
    states = RandomStates(devices=devices_in_use())
    try:
        yield
    finally:
        states.put_back()


def _launch_bound(calls: Mapping[str, FunctionCall], rounds: Rounds, adapter: Adapter) -> list[str]:
    """Returns a list with one note that names the launch-bound functions. Returns an empty list if there are none."""
    medians = np.median(rounds.times, axis=(1, 2)).tolist()
    bound = launch_bound(
        probe(name, call, adapter, median) for (name, call), median in zip(calls.items(), medians, strict=True)
    )
    return [f'{bound}. Compare by="throughput", too'] if bound else []


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


def _named(inputs: Inputs) -> list[tuple[str, tuple[object, ...]]]:
    """Returns a pair (name, arguments) for each input. A call gets these arguments after the arguments that all calls
    have in common."""
    named = inputs.items() if isinstance(inputs, Mapping) else [(_shown(value), value) for value in inputs]
    return [(str(name), value if isinstance(value, tuple) else (value,)) for name, value in named]


def _shown(value: object) -> str:
    """Returns a name for an input: the shape and dtype of an array, or the shortened `repr` of another value."""
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{'x'.join(map(str, shape)) or 'scalar'} {str(dtype).removeprefix('torch.')}"
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:23]}…"
