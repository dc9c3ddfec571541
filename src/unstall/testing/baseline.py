"""The baseline: a file with one line of figures for each test. People can review it, and git can merge it.

The lines are sorted by test. An example:

# unstall baseline: virtual h200, torch 2.13.0+cpu
launches=214 syncs=3 reserved=20MiB  tests/test_train.py::test_step[bf16]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from unstall.errors import UsageError
from unstall.files import write_atomically
from unstall.guarding.wait import Wait
from unstall.testing.counts_of_test import CountsOfTest
from unstall.testing.judging import Broken, lines_of

FAIL_ON_INCREASE = "--fail-on-increase"
_HEADER = "# unstall baseline: "
_FIGURE = re.compile(r"(launches|syncs)=(\d{1,15})|(reserved)=(\d{1,15})MiB")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one test, as they stand in the baseline file. A figure that is unknown is
    None.

    Attributes:
        launches: How many kernels, graphs, copies and memsets the test launched.
        syncs: How often the CPU waited for the GPU.
        reserved_mib: The peak of reserved device memory, in MiB, rounded up.
    """

    launches: int | None
    syncs: int | None
    reserved_mib: int | None

    @classmethod
    def of(cls, counts: CountsOfTest) -> Figures:
        reserved = counts.reserved_bytes
        return cls(counts.launches, counts.syncs, None if reserved is None else -(-reserved // _MIB))

    def __str__(self) -> str:
        known = (("launches", self.launches, ""), ("syncs", self.syncs, ""), ("reserved", self.reserved_mib, "MiB"))
        return " ".join(f"{name}={value}{unit}" for name, value, unit in known if value is not None)

    def changes(self, now: Figures) -> list[tuple[str, int]]:
        """Returns the figures that differ in `now`, which are newer, as `(words, newer - older)`:
        for example `("syncs 3 -> 5", 2)`.
        """
        found = []
        for name, unit in (("launches", ""), ("syncs", ""), ("reserved_mib", " MiB")):
            before, after = getattr(self, name), getattr(now, name)
            if before is not None and after is not None and before != after:
                what = name.removesuffix("_mib")
                found.append((f"{what} {before:,}{unit} -> {after:,}{unit}", after - before))
        return found

    def lost(self, now: Figures) -> list[str]:
        """Returns the names of the figures that are known here but unknown in `now`."""
        return [
            name.removesuffix("_mib")
            for name in ("launches", "syncs", "reserved_mib")
            if getattr(self, name) is not None and getattr(now, name) is None
        ]

    def updated(self, now: Figures) -> Figures:
        """Returns the figures of `now`. A figure that is unknown there is taken from the older figures (`self`)."""
        return Figures(
            self.launches if now.launches is None else now.launches,
            self.syncs if now.syncs is None else now.syncs,
            self.reserved_mib if now.reserved_mib is None else now.reserved_mib,
        )


@dataclass(slots=True)
class Baseline:
    """The content of the baseline file, which has the figures of each test.

    Attributes:
        path: The path of the file.
        fails: Whether a test fails if it exceeds its figures in the file. If True, the file is not
            written.
        gpu: The GPU and the torch version that the figures are of; "" if the file does not exist
            yet.
        figures: The figures of each test, by the test's id as `written` returns it.
    """

    path: Path
    fails: bool = False
    gpu: str = ""
    figures: dict[str, Figures] = field(default_factory=dict)

    def increases(self, test: str, counts: CountsOfTest, waits: Sequence[Wait]) -> list[Broken]:
        """Compares what a test did with its figures in the baseline file.

        Args:
            test: The test's id.
            counts: What the test did.
            waits: The waits of the test. Their lines are named if there were more waits than
                before.

        Returns:
            A list with one `Broken` for all figures that increased, and one for all figures of the
            file that could not be counted this time. It is empty if there are neither, or if the
            file does not have the test.
        """
        before, now = self.figures.get(written(test)), Figures.of(counts)
        if before is None:
            return []
        more = [text for text, difference in before.changes(now) if difference > 0]
        lost = before.lost(now)
        if lost:
            text = f"{FAIL_ON_INCREASE}: {' and '.join(lost)} cannot be compared: not counted here"
            return [*self._more(more, waits), Broken(FAIL_ON_INCREASE, text)]
        return self._more(more, waits)

    def _more(self, more: list[str], waits: Sequence[Wait]) -> list[Broken]:
        if not more:
            return []
        lines = lines_of(waits) if any(text.startswith("syncs") for text in more) else ""
        text = f"{FAIL_ON_INCREASE}: more than {self.path.name} says: {', '.join(more)}"
        return [Broken(FAIL_ON_INCREASE, text + (f". It waits here:{lines}" if lines else ""))]

    def write(self, gpu: str, figures: Mapping[str, Figures]) -> None:
        """Writes the baseline file.

        Args:
            gpu: The GPU and the torch version that the figures are of.
            figures: The figures of each test, by the test's id as `written` returns it.

        Raises:
            UsageError: The file cannot be written.
        """
        lines = [f"{each}  {test}\n" for test, each in sorted(figures.items())]
        write_atomically(self.path, "".join([f"{_HEADER}{gpu}\n", *lines]).encode("utf-8", "surrogateescape"))


def read(path: str | Path, *, fails: bool) -> Baseline:
    """Reads the baseline file. If it does not exist and `fails` is False, returns an empty
    baseline.

    `fails` says whether a test fails if it exceeds its figures in the file.

    Raises:
        pytest.UsageError: `path` is empty, the file cannot be read, one of its lines is invalid, or
            it does not exist although `fails` is True.
    """
    if not path:
        raise pytest.UsageError("--fail-on-increase: say from what: --unstall-baseline FILE")
    baseline = Baseline(Path(path).absolute(), fails)
    try:
        text = baseline.path.read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        if fails:
            raise pytest.UsageError(
                f"--unstall-baseline: there is no {path}. Without --fail-on-increase, it is written"
            ) from None
        return baseline
    except OSError as error:
        raise pytest.UsageError(f"--unstall-baseline: {path}: {error.strerror}") from None
    for number, line in enumerate(text.split("\n"), 1):
        try:
            _add(baseline, line)
        except UsageError as error:
            raise pytest.UsageError(f"--unstall-baseline: {path}:{number}: {error}") from None
    return baseline


def written(test: str) -> str:
    """Returns a test's id as it stands in the baseline file: line breaks in it are escaped."""
    return test.replace("\r", "\\r").replace("\n", "\\n")


def _add(baseline: Baseline, line: str) -> None:
    if line.startswith(_HEADER):
        baseline.gpu = line.removeprefix(_HEADER).strip()
        return
    if not line.strip() or line.startswith("#"):
        return
    figures, _, test = line.rstrip("\r").partition("  ")
    found = [_FIGURE.fullmatch(figure) for figure in figures.split(" ")]
    known = {match[1] or match[3]: int(match[2] or match[4]) for match in found if match}
    if len(known) < len(found) or not test.strip():
        raise UsageError(f"this is no line of a baseline, such as `launches=2 syncs=0 reserved=2MiB  TEST`: {line!r}")
    if test in baseline.figures:
        raise UsageError(f"a second line for {test}: remove one of them")
    baseline.figures[test] = Figures(known.get("launches"), known.get("syncs"), known.get("reserved"))
