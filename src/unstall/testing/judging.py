"""Finds the limits that a test exceeds, and says in a sentence with source lines by what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unstall.answers.explain import explain
from unstall.blaming.result import Race
from unstall.budgets.budget import Budget
from unstall.budgets.check import check
from unstall.budgets.limits import size_like
from unstall.figures import counted
from unstall.frameworks import OURS
from unstall.guarding.wait import Wait
from unstall.testing.counts_of_test import CountsOfTest
from unstall.testing.limits import MarkerLimit
from unstall.testing.sources import Source
from unstall.timeline.columns import Timeline

MOST_LINES = 10
"""The largest number of source lines in a message."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A limit that a test exceeds, or that cannot be checked.

    Attributes:
        limit: The marker that sets the limit, as written in the test; or the option of pytest that
            does.
        text: The message that pytest shows.
    """

    limit: str
    text: str


def judge(
    limits: Mapping[str, MarkerLimit], counts: CountsOfTest, waits: Sequence[Wait], source: Source
) -> list[Broken]:
    """Returns those of the limits that a test exceeds, and those that cannot be checked on this
    GPU.

    Args:
        limits: The test's limits, by the names of their markers.
        counts: What the test did.
        waits: The waits of the test.
        source: The object that counted. It has the timeline and the races of the test.
    """
    found = []
    for limit in limits.values():
        text = _JUDGES[limit.name](limit, counts, waits, source)
        if text:
            found.append(Broken(limit.text, f"{limit.text}: {text}"))
    return found


def lines_of(waits: Sequence[Wait]) -> str:
    """Returns text that lists the source lines of `waits`, each with advice on how to avoid the
    wait.

    The line that waits most often comes first. Of lines that wait equally often, those of the
    program come before those of packages.
    """
    often = Counter((wait.called_from, wait.where, wait.code or wait.operator, wait.advice) for wait in waits)
    ordered = sorted(often.items(), key=lambda line: (-line[1], bool(line[0][0])))
    shown = [
        _line(f"{number:,}x {where}: {code}" + (f", called from {caller}" if caller else ""), advice)
        for (caller, where, code, advice), number in ordered[:MOST_LINES]
    ]
    left = len(often) - len(shown)
    return "".join(shown) + (f"\n  and {counted(left, 'more line')}" if left else "")


def _line(text: str, advice: str) -> str:
    return f"\n  {text}" + (f"\n      {advice}" if advice else "")


def without_our_frames(error: BaseException) -> None:
    """Cuts the frames of unstall off the end of an error's traceback, so that it ends at the line that waits."""
    last, trace = None, error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(OURS):
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None


def _no_sync(limit: MarkerLimit, counts: CountsOfTest, waits: Sequence[Wait], source: Source) -> str:
    if counts.syncs is None:
        return _NO_WAITS
    return f"the test went on after a wait that it caught:{lines_of(waits)}" if counts.syncs else ""


def _syncs(limit: MarkerLimit, counts: CountsOfTest, waits: Sequence[Wait], source: Source) -> str:
    if counts.syncs is None:
        return _NO_WAITS
    if counts.syncs <= limit.value:
        return ""
    return f"the CPU waited for the GPU {_times(counts.syncs)}:{lines_of(waits)}"


def _launches(limit: MarkerLimit, counts: CountsOfTest, waits: Sequence[Wait], source: Source) -> str:
    if counts.launches is None:
        return "launches cannot be counted here: `unstall doctor` says why"
    if counts.launches <= limit.value:
        return ""
    return f"the test launched {counts.launches:,} kernels, graphs, copies and memsets"


def _memory(limit: MarkerLimit, counts: CountsOfTest, waits: Sequence[Wait], source: Source) -> str:
    if counts.reserved_bytes is None:
        return "reserved memory cannot be measured here: use --unstall-gpu h200"
    if counts.reserved_bytes <= limit.value:
        return ""
    return f"torch reserved {size_like(limit.value, counts.reserved_bytes)} at the peak"


def _idle(limit: MarkerLimit, counts: CountsOfTest, waits: Sequence[Wait], source: Source) -> str:
    if counts.launches == 0:
        return "device idle cannot be checked: the test launches no work on a GPU"
    timeline = source.timeline()
    if timeline is None:
        return "idle time is predicted on a virtual GPU only: use --unstall-gpu h200, or leave this test out here"
    return _of_timeline(timeline, Budget(idle=limit.value), "the GPU idles {} of the time")


def _races(limit: MarkerLimit, counts: CountsOfTest, waits: Sequence[Wait], source: Source) -> str:
    timeline = source.timeline()
    if not counts.gpu or (timeline is not None and not len(timeline.device)):
        return ""
    if timeline is not None:
        return _of_timeline(timeline, Budget(races=0), "races: {}")
    races = source.races()
    if races is None:
        return "races cannot be looked for here: use --unstall-gpu h200, or leave this test out here"
    lines = [_line(f"{_place(race)}: {race.title}", race.fix) for race in races]
    return f"races: {len(races)}{''.join(lines)}" if races else ""


def _place(race: Race) -> str:
    where = race.later.where
    return f"{where.file}:{where.line}" if where else race.later.operator


def _of_timeline(timeline: Timeline, budget: Budget, saw: str) -> str:
    """Returns what `unstall check` says about the test's timeline; "" if the budget holds.

    `saw` is a format string for an exceeded budget. The figure takes the place of its "{}".
    """
    [outcome] = check(explain(timeline).result, budget).outcomes
    if outcome.state == "held":
        return ""
    text = saw.format(outcome.seen_text) if outcome.state == "exceeded" else outcome.text
    return text + "".join(
        _line(f"{line.where.file}:{line.where.line}: {line.title or line.text}", line.fix) for line in outcome.lines
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


_NO_WAITS = "waits cannot be seen on this GPU: `unstall doctor` says why, or use --unstall-gpu h200"
_JUDGES = {
    "no_sync": _no_sync,
    "limit_syncs": _syncs,
    "limit_launches": _launches,
    "limit_device_memory": _memory,
    "limit_idle": _idle,
    "no_race": _races,
}
