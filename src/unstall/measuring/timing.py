"""`Timing`: the result of a `Timer`. It has the interface of `torch.utils.benchmark.Measurement`. Times are in s."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from unstall.figures import counted
from unstall.measuring.statistics import Spread
from unstall.measuring.wording import precise

if TYPE_CHECKING:
    from torch.utils.benchmark import Measurement

_UNSTEADY = 0.1  # of the median, the interquartile range


@dataclass(frozen=True)
class TaskSpec:
    """What was timed: the arguments that the `Timer` was given."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        beside = f": {self.sub_label}" if self.sub_label else ""
        if self.label is not None:
            return self.label + beside
        if "\n" not in self.stmt:
            return self.stmt + beside
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"


@dataclass(frozen=True)
class Timing:
    """The result of a `Timer`: the times of blocks. A block is a number of runs of the statement.

    Attributes:
        number_per_run: The number of runs of the statement in each block.
        raw_times: The time of each block in s.
        task_spec: The arguments of the `Timer`.
        metadata: Data that `to_torch` passes on to torch's `Measurement`.
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[object, object] | None = None

    @property
    def times(self) -> list[float]:
        """The time of one run of the statement in s, as each block gives it."""
        return [each / self.number_per_run for each in self.raw_times]

    @property
    def median(self) -> float:
        return float(np.median(self.times))

    @property
    def mean(self) -> float:
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        low, high = np.quantile(self.times, (0.25, 0.75))
        return float(high - low)

    @property
    def significant_figures(self) -> int:
        """The number of significant digits of the median. As in torch, it is estimated from the
        middle half of the samples.
        """
        ordered = np.sort(self.times)
        middle = ordered[len(ordered) // 4 : -(-3 * len(ordered) // 4)]
        half = max(1.645 * float(middle.std()) / np.sqrt(len(middle)), 25e-9)
        return min(max(int(np.floor(np.log10(self.median / half))), 1), 5)

    @property
    def has_warnings(self) -> bool:
        """Whether the times of the blocks differ so much that other work must have slowed some of the blocks."""
        return not self.meets_confidence(_UNSTEADY)

    def meets_confidence(self, threshold: float = _UNSTEADY) -> bool:
        """Returns whether the interquartile range of the times is below `threshold` times their median."""
        return self.iqr < threshold * self.median

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    @property
    def stmt(self) -> str:
        return self.task_spec.stmt

    @property
    def setup(self) -> str:
        return self.task_spec.setup

    @property
    def label(self) -> str | None:
        return self.task_spec.label

    @property
    def sub_label(self) -> str | None:
        return self.task_spec.sub_label

    @property
    def description(self) -> str | None:
        return self.task_spec.description

    @property
    def env(self) -> str:
        return "Unspecified env" if self.task_spec.env is None else self.task_spec.env

    @property
    def num_threads(self) -> int:
        return self.task_spec.num_threads

    @property
    def spread(self) -> Spread:
        """The time of one run of the statement in ns, with the interval of its median."""
        return Spread.of(np.array(self.times) * 1e9)

    def to_torch(self) -> Measurement:
        """Returns this timing as a `Measurement` of torch, for `torch.utils.benchmark.Compare`. Imports torch."""
        from torch.utils.benchmark.utils import common

        spec = common.TaskSpec(**asdict(self.task_spec))
        return common.Measurement(self.number_per_run, list(self.raw_times), spec, self.metadata)

    @staticmethod
    def merge(timings: Iterable[Timing]) -> list[Timing]:
        """Merges timings: returns one timing for each distinct `task_spec`. Each block of a merged
        timing counts as one run.
        """
        groups: dict[TaskSpec, list[float]] = {}
        for each in timings:
            groups.setdefault(each.task_spec, []).extend(each.times)
        return [Timing(1, times, spec) for spec, times in groups.items()]

    def __repr__(self) -> str:
        spread, n = self.spread, len(self.raw_times)
        lines = [self.title]
        if self.description:
            lines.append(self.description)
        if self.task_spec.setup != "pass":
            lines.append(f"setup: {self.task_spec.setup}")
        lines.append(f"  Median: {precise(spread.median)}" if n > 1 else f"  {precise(spread.median)}")
        if n >= 4:
            lines.append(f"  IQR:    {precise(spread.iqr)} ({precise(spread.q1)} to {precise(spread.q3)})")
        runs = f"{counted(self.number_per_run, 'run')} per measurement, {counted(self.num_threads, 'thread')}"
        lines.append(f"  {counted(n, 'measurement')}, {runs}")
        if self.has_warnings and n >= 4:
            share = 100 * self.iqr / self.median
            lines.append(
                f"  WARNING: the interquartile range is {share:.1f} % of the median: something else was at work"
            )
        return "\n".join(lines)
