"""`compare_numbers`: finds whether two ways of running a function (for example on two devices) give
the same results, apart from rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from unstall.blaming.result import Race
from unstall.errors import UsageError
from unstall.guest.rng import RandomStates
from unstall.guest.steps import ignoring_steps
from unstall.numbers.answer import Numbers, Row
from unstall.numbers.classes import DIFFERENT, Sides, class_of
from unstall.numbers.halves import compare_halves
from unstall.numbers.outside import Outside
from unstall.numbers.races import about_race, race_at, races_of
from unstall.numbers.reasons import composed
from unstall.numbers.run import run
from unstall.numbers.streams import Streams
from unstall.numbers.ways import Function, Way, as_given, check, way
from unstall.numbers.whole import Runs, pattern_at, tells_factor
from unstall.rounding.judge import RUNS, Compared, Judge
from unstall.rounding.noise import Noise
from unstall.rounding.samples import Ran

_turn = threading.RLock()


def compare_numbers(
    fn: Function, *inputs: object, across: Sequence[str | Callable[..., object]] = ("repeat", "float64")
) -> Numbers:
    """Runs a function in several ways, and finds for each way the first operator whose result
    differs by more than rounding.

    All ways start with copies of the same arguments, and with the same random state. All ways also
    run the backward pass if a result needs gradients. The comparison covers the results, the
    gradients, the arguments after the run, and the results of the operators that the function
    calls.

    The effect of rounding is measured. The function runs 8 more times, with random errors in each
    operator's result. These random errors are as large as the operator's rounding errors (Monte
    Carlo arithmetic, see `noise.py`). A difference is more than rounding if it exceeds the effect
    of the random errors by Student's factor. The confidence is 99.9 % for all tensors of a way
    together.

    Several threads may call it at the same time. One thread waits for the other, because random
    states belong to the process.

    Args:
        fn: A function, a module, or a method of a module. Modules that the function uses must be
            among `inputs`, because only the arguments are copied or moved to another device.
        inputs: The arguments of `fn`: modules, tensors, and containers of both.
        across: The ways in which `fn` runs:
            - "repeat": once more, unchanged.
            - "serial": each operator waits for the device, so that streams do not overlap. If the
              function uses several streams and has a race that no other way shows, the result has a
              row "serial" even if `across` does not name it.
            - "cpu", "cuda": on this device.
            - "float64": in this type. Random numbers are drawn as in float32.
            - "batch": once for each half of the batch. A tensor has a batch dimension if its first
              dimension is as long as that of the first tensor in `inputs`. All results must have a
              batch dimension. Only the operators of the first half are compared.
            - "graph": by `unstall.graphed`. Operators are not compared.
            - "compiled": by `torch.compile`. Operators are not compared.
            - another function or module: called instead of `fn`, with the same arguments. A module
              runs on its own device.

    Returns:
        A row for each way. `str()` of the result is a report for a terminal. `save()` writes the
        report to a file.

    Raises:
        UsageError: A way is unknown, the function uses a module that is not among its arguments, or
            the function has nothing to compare.
    """
    if isinstance(across, str) or callable(across):
        raise UsageError('`across` is a list of ways, such as across=["float64"]')
    for which in across:
        check(which)
    with _turn, _kept_random_states(), ignoring_steps():
        streams = Streams()
        before = as_it_is = run(as_given(fn, inputs), streams=streams, outside=Outside())
        if not before.ends:
            raise UsageError("the function returns no tensor and is given none, so nothing can be compared")
        if streams.several:  # it may race, and what is compared with it must not
            before = run(as_given(fn, inputs), one_at_a_time=True)
            as_it_is = run(as_given(fn, inputs))  # once more: the first run of an operator waits for the device
        noisy = [run(as_given(fn, inputs), Noise(seed), one_at_a_time=streams.several) for seed in range(RUNS)]
        rows = _Rows(fn, inputs, Judge(before, noisy), streams, as_it_is)
        return Numbers(tuple(rows.of(across)), len(before))


class _Rows:
    """Runs a function in several ways, compares each with the unchanged function, and makes a row
    for each way.

    `judge` has the run of the unchanged function with which each way is compared. If the function
    uses several streams, operators ran one at a time in this run, so it has no races. In the run
    `as_it_is`, operators of several streams may overlap, so it may have races.
    """

    def __init__(self, fn: Function, inputs: Sequence[object], judge: Judge, streams: Streams, as_it_is: Ran) -> None:
        self._fn, self._inputs, self._judge = fn, inputs, judge
        self._streams, self._as_it_is = streams, as_it_is
        self._races = races_of(self._base()) if streams.several else ()

    def of(self, across: Sequence[str | Function]) -> Iterator[Row]:
        names: dict[str, int] = {}
        races = False
        for which in across:
            row = self._row(which)
            races = races or row.kind == "race"
            names[row.way] = names.get(row.way, 0) + 1
            yield replace(row, way=f"{row.way} {names[row.way]}") if names[row.way] > 1 else row
        if self._streams.several and not races and "serial" not in names:
            row = self._row("serial")
            if not row.agrees:
                yield row

    def _base(self) -> Way:
        return as_given(self._fn, self._inputs)

    def _row(self, which: str | Function) -> Row:
        name = which if isinstance(which, str) else ""
        try:
            taken = way(which, self._fn, self._inputs)
            name = taken.name
            if taken.name == "batch" and self._judge.changes_arguments:
                return self._of_half()
            return self._compared(which, taken)
        except Exception as error:  # of this way; the others may run
            said = f"{error}" if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
            return Row(name, None, "failed", f"It cannot run: {said}")

    def _compared(self, which: str | Function, taken: Way) -> Row:
        streams, is_serial = Streams(), taken.name == "serial"
        # The function as it is, and with operators that wait, have changed places if it uses several streams.
        swapped = is_serial and self._streams.several
        after = self._as_it_is if swapped else run(taken, streams=streams)
        found = self._judge.compare(after)
        make = self._base if is_serial else lambda: way(which, self._fn, self._inputs)
        sides = Sides(self._base, make, self._streams, streams)
        if found.first is not None and taken.operators and (is_serial or sides.several):
            # What runs on several streams is run without overlap. Without streams that were seen, "serial" was run so.
            again = self._judge.compare(run(make(), one_at_a_time=sides.several))
            if again.first is None:
                races = self._races if self._streams.several else races_of(make())
                return _of_race(taken.name, found, races)
        if is_serial and self._races and found.first is None:
            return _of_race(taken.name, found, self._races)
        kind, sentence = class_of(found, taken, self._judge, sides)
        if taken.name == "batch" and kind in ("rounding", "factor", "different"):
            return self._of_batch(found, kind, sentence)
        pattern = None
        if kind in ("factor", "different"):
            pattern = pattern_at(Runs(self._judge.before, after, found), self._base, make)
            if kind == "factor" and tells_factor(found) and (pattern is None or not pattern.has_factor):
                kind, sentence = "different", DIFFERENT  # an operator multiplies, but another undoes it
        return Row(taken.name, found, kind, sentence, why=self._why(found, kind), pattern=pattern)

    def _why(self, found: Compared, kind: str) -> str:
        return composed(found, self._judge.before.operators) if kind in ("rounding", "batch") else ""

    def _of_batch(self, found: Compared, kind: str, sentence: str) -> Row:
        halves = compare_halves(self._fn, self._inputs)
        verdict = halves.verdict() if halves is not None else None
        if verdict is not None and (kind != "rounding" or verdict[0] != "different"):  # both must say that
            kind, sentence = verdict
        if halves is not None and kind == "different" and halves.found.first is not None:
            found = halves.found
        return Row("batch", found, kind, sentence, why=self._why(found, kind))

    def _of_half(self) -> Row:
        """Returns the row for the way "batch" of a function that changes its arguments. Runs only
        the first half of the batch.
        """
        halves = compare_halves(self._fn, self._inputs)
        if halves is not None and halves.found.first is not None:
            return Row("batch", halves.found, *(halves.verdict() or ("different", "")))
        return Row("batch", None, "failed", "It changes its arguments, so half batches would not be independent.")


def _of_race(name: str, found: Compared, races: Sequence[Race]) -> Row:
    race = race_at(races, found.first)
    sentence = about_race(race, others=len(races) - 1, shows=found.first is not None)
    return Row(name, found, "race", sentence, race=race)


@contextmanager
def _kept_random_states() -> Iterator[None]:
    states = RandomStates()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        states.put_back()
