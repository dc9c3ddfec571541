"""Runs a program in several ways, and compares the numbers of the runs. Each run is a separate
process, which records its numbers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch

from unstall.errors import TraceError, UsageError
from unstall.launching.launch import launch
from unstall.numbers import files
from unstall.numbers.answer import Row
from unstall.numbers.child import Settings
from unstall.numbers.classes import class_of_runs
from unstall.numbers.files import ENDING, Recorded
from unstall.numbers.reasons import about_cut
from unstall.numbers.recorded import with_names_of
from unstall.rounding.judge import RUNS, Errors, Judge

PREFIX = "unstall-numbers-"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProgramWay:
    """A way to run a program, such as without a GPU.

    Attributes:
        name: The name of the way.
        variables: Environment variables that the program gets, as pairs (name, value).
        float64: Whether float64 is the default type.
        deterministic: Whether torch is to use deterministic kernels only.
    """

    name: str
    variables: tuple[tuple[str, str], ...] = ()
    float64: bool = False
    deterministic: bool = False

    def and_also(self, *variables: tuple[str, str]) -> ProgramWay:
        return replace(self, variables=(*self.variables, *variables))


_NO_TF32 = ("NVIDIA_TF32_OVERRIDE", "0")
_SERIAL = ("CUDA_LAUNCH_BLOCKING", "1")
AS_IT_IS = ProgramWay("as it is")
WAYS = {
    each.name: each
    for each in (
        ProgramWay("repeat"),
        ProgramWay("cpu", (("CUDA_VISIBLE_DEVICES", ""),)),
        ProgramWay("cuda"),
        ProgramWay("float64", float64=True),
        ProgramWay("deterministic", (("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),), deterministic=True),
        ProgramWay("serial", (_SERIAL,)),
    )
}
"""The ways to run a program, by their names."""


def check_ways(names: Sequence[str]) -> list[ProgramWay]:
    """Returns the ways to run a program that have the given names.

    Raises:
        UsageError: One of the names is not the name of a way, or a way needs a CUDA device and
            there is none.
    """
    for name in names:
        if name not in WAYS:
            raise UsageError(f"no way to run a program is called {name!r}: give some of {', '.join(WAYS)}")
        if name in ("cuda", "serial") and not torch.cuda.is_available():
            raise UsageError(f"{name}: there is no CUDA device, and programs do not run on a virtual one here")
    return [WAYS[name] for name in dict.fromkeys(names)]


class Program:
    """A program that can be run in several ways while its numbers are recorded.

    Args:
        command: The command line after `python`.
        most: The largest number of operators to record in each run.
        tell: A function that is called before each run, with words that say which run it is.
    """

    def __init__(self, command: Sequence[str], most: int, tell: Tell) -> None:
        self._command, self._most, self._tell = command, most, tell
        self.name = command[command[0] == "-m"]

    def record(self, *, errors: bool = True) -> Recorded:
        """Runs the program unchanged, and returns what was recorded.

        Args:
            errors: Whether to run the program again with random errors, to measure the effect of rounding.

        Raises:
            TraceError: The program fails, or calls no operator.
        """
        self._tell("the program as it is")
        first = self._run(AS_IT_IS, shown=True)
        if not errors:
            return first
        self._tell("the program as it is, again")
        again = self._run(AS_IT_IS).ran
        noisy = []
        # Races would be taken for errors.
        serial = AS_IT_IS.and_also(_SERIAL) if first.ending.device else AS_IT_IS
        for seed in range(RUNS):
            self._tell(f"with random errors, {seed + 1} of {RUNS}")
            noisy.append(self._run(serial, errors=seed).ran)
        known = Errors.of(first.ran, noisy)
        found = Judge(first.ran, known).compare(again)
        kind, sentence = class_of_runs(found, first.ran, is_repeat=True)
        if kind not in ("equal", "nondeterministic"):  # random errors would be mixed with that
            raise TraceError(f"the program differs each time that it runs, so nothing can be told: {sentence}")
        return replace(first, errors=known)

    def compare(self, recorded: Recorded, way: ProgramWay) -> Row:
        """Runs the program in the given way, and compares this run with the recorded run."""
        assert recorded.errors is not None
        judge = Judge(recorded.ran, recorded.errors)
        self._tell(way.name)
        try:
            after = with_names_of(recorded.ran, self._run(way).ran)
            found = judge.compare(after)
            kind, sentence = class_of_runs(found, judge.before, is_repeat=way.name == "repeat")
            if kind in ("different", "factor") and recorded.ending.device:
                kind, sentence = self._class_by_running(way, recorded.errors) or (kind, sentence)
        except TraceError as error:
            return Row(way.name, None, "failed", f"{error}")
        return Row(way.name, found, kind, sentence + about_cut(recorded.ran, after))

    def _class_by_running(self, way: ProgramWay, errors: Errors) -> tuple[str, str] | None:
        """Runs the program without TF32, once unchanged and once in the given way. If these two
        runs still differ, runs the program without overlap of kernels, again once unchanged and
        once in the given way.

        Returns `(kind, sentence)` if the difference goes away without TF32 or without overlap.
        Returns None if the difference remains.
        """
        if self._agree(way, errors, "without TF32", _NO_TF32):
            return "TF32", "One of them rounds factors to TF32: with NVIDIA_TF32_OVERRIDE=0 in both, all is rounding."
        if self._agree(way, errors, "serialised", _SERIAL):
            return "race", (
                "It goes away if each kernel is waited for (CUDA_LAUNCH_BLOCKING=1 in both): work on one stream does "
                "not wait for that of another. `unstall check --races` names both lines."
            )
        return None

    def _agree(self, way: ProgramWay, errors: Errors, name: str, variable: tuple[str, str]) -> bool:
        self._tell(f"the program as it is, {name}")
        before = self._run(AS_IT_IS.and_also(variable)).ran
        self._tell(f"{way.name}, {name}")
        after = with_names_of(before, self._run(way.and_also(variable)).ran)
        alike = errors.operators is None or len(errors.operators) == len(before.operators)
        return alike and Judge(before, errors).compare(after).first is None

    def _run(self, way: ProgramWay, errors: int | None = None, *, shown: bool = False) -> Recorded:
        with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
            path, log = Path(folder) / f"run{ENDING}", Path(folder) / "log"
            settings = Settings(
                str(path), self.name, self._most, errors, float64=way.float64, deterministic=way.deterministic
            )
            with log.open("wb") as said:
                ended = launch(
                    self._command,
                    "unstall.numbers.child",
                    msgspec.json.encode(settings).decode(),
                    stdout_to_stderr=True,
                    stderr=None if shown else said.fileno(),
                    variables={"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), **dict(way.variables)},
                )
            if ended.code:
                last = log.read_text(errors="replace").strip().rpartition("\n")[2]
                raise TraceError(f"the program fails with exit code {ended.code}" + (f": {last}" if last else ""))
            if not path.exists():
                raise TraceError("the program does not import torch, so it has no operators")
            found = files.read(path)
        if not found.ran.operators and not found.ran.ends:
            raise TraceError("the program calls no operator of torch")
        return found
