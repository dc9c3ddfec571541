"""Finds steps by annotations: annotations of the recorder, annotations of known programs, and annotations with numbers
that count up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import takewhile

import numpy as np
from msgspec.structs import replace

from unstall.locate.kinds import names_of_host
from unstall.locate.step_evidence import Nature, nature_of
from unstall.locate.step_spans import ALIKE, Steps, launch_times, steps_of
from unstall.timeline.columns import I64, Bool, HostKind, Timeline
from unstall.timeline.grouping import is_one_of

_KNOWN = re.compile(
    r"execute_(context|new|model)_\d"  # vLLM: execute_context_1(64)_generation_8(8)
    r"|step\["  # SGLang: step[DECODE bs=8]
    r"|\[pl\]\[profile\]run_training_batch$"  # Lightning
    r"|(train(ing)?[ _])?iteration$",  # Megatron and its kin
    re.IGNORECASE,
)
"""Matches the names of annotations that known programs put around one step. Work after the annotation, such as
sampling, belongs to the same step."""

_OF_STEPS = re.compile(r"(?<![a-z])(train|eval|valid|test|step|iter|iteration|batch|token|decode|prefill|frame)", re.I)
_OF_PARTS = re.compile(
    r"layer|block|stage|micro|module|expert|head|bucket|chunk|shard|param|rank|stream|loss|ward", re.I
)
"""Matches names that suggest a part of a step, such as a layer, a block, a micro-batch, a forward or a backward
pass."""

_NUMBER = re.compile(r"\d+")
_MOST_REPEATS = 10_000  # more are no steps
_MOST_CANDIDATES = 64


def named(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Returns a function that tests whether a text begins with a match of `pattern`."""
    return lambda text: pattern.match(text) is not None


def is_annotation(timeline: Timeline) -> Bool:
    """Returns a mask of the host events that are annotations."""
    chosen: Bool = timeline.host.kind == HostKind.ANNOTATION
    return chosen


def annotated(timeline: Timeline, wanted: Callable[[str], bool]) -> I64:
    """Returns the rows of `timeline.host` of the annotations whose names `wanted` accepts.

    If one of these annotations is inside another one, only the outer one is returned. If several
    threads have such annotations, only the thread with the most of them counts.
    """
    host = timeline.host
    names, which = names_of_host(timeline)
    chosen = np.array([wanted(timeline.text(index)) for index in names.tolist()], dtype=np.bool_)
    if not chosen.any():
        return np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(chosen[which] & is_one_of(host.kind, (HostKind.ANNOTATION, HostKind.OP)))
    if not len(rows):
        return rows
    rows = rows[host.thread[rows] == np.bincount(host.thread[rows]).argmax()]
    reach = np.maximum.accumulate(host.end[rows])
    outer: I64 = rows[np.append(True, host.start[rows][1:] >= reach[:-1])]
    return outer


def by_known_programs(timeline: Timeline) -> Steps | None:
    """Finds steps by the annotations that known programs, such as vLLM, put around a step.

    Returns None if these annotations do not enclose nearly all launches, or if each annotation
    encloses only a part of a step.
    """
    rows = annotated(timeline, named(_KNOWN))
    if len(rows) < 2 or len(rows) > _MOST_REPEATS:
        return None
    start, end = timeline.host.start[rows], timeline.host.end[rows]
    patterns = sorted({_pattern(timeline.strings[name]) for name in timeline.host.name[rows].tolist()})
    alike = takewhile(lambda letters: letters[0] == letters[1], zip(patterns[0], patterns[-1], strict=False))
    name = patterns[0] if len(patterns) == 1 else "".join(letter for letter, _ in alike) + "*"
    end = np.append(start[1:], end[-1] + int(np.median(start[1:] - end[:-1])))
    if _covered(launch_times(timeline), start, end) < ALIKE or nature_of(timeline, start, end) == Nature.PART:
        return None
    return steps_of(timeline, "annotation", name, start, end)


_MOST_NUMBER = 1e18  # a name is anything that a file says


def by_counter(timeline: Timeline, but: re.Pattern[str]) -> tuple[Steps | None, str | None]:
    """Finds steps by annotations whose names differ only in a number that counts up.

    The annotations must enclose nearly all launches. If a name suggests layers, the annotations do
    not mark steps, even if their numbers count up. If several names with a number qualify, such as
    epochs and batches, the most frequent annotations are the steps.

    Args:
        timeline: A recorded run.
        but: Names that match this pattern do not count.

    Returns:
        `(steps, hint)`. `steps` is None if no annotations qualify. `hint` is the name of other
        annotations that might mark steps, or None.
    """
    launched = launch_times(timeline)
    best, hint = None, None
    for pattern, rows in _counted(timeline, but):
        start, end = timeline.host.start[rows], timeline.host.end[rows]
        if _OF_PARTS.search(pattern) or _covered(launched, start, end) < ALIKE:
            continue
        nature = nature_of(timeline, start, end)
        if nature == Nature.STEP or (nature != Nature.PART and _OF_STEPS.search(pattern)):
            if best is None or len(rows) > len(best):
                best = steps_of(timeline, "annotation", pattern, start, end)
        elif nature != Nature.PART:
            hint = pattern
    return best, hint


def _counted(timeline: Timeline, but: re.Pattern[str]) -> Iterator[tuple[str, I64]]:
    """Yields `(pattern, rows)` for annotations whose names differ only in numbers, if these numbers
    count up.

    `pattern` is the common name, with "*" in place of each number. `rows` are the annotations' rows
    in `timeline.host`, in order of time. Names that match `but` are left out.
    """
    host = timeline.host
    of: dict[tuple[str, int], list[int]] = {}
    for name in np.unique(host.name[is_annotation(timeline)]).tolist():
        count = len(_NUMBER.findall(timeline.strings[name]))
        if count and not but.match(timeline.strings[name]):
            # A name may hold a "*" itself.
            of.setdefault((_pattern(timeline.strings[name]), count), []).append(name)
    several = sorted(
        (pattern for pattern in of if 1 < len(of[pattern]) <= _MOST_REPEATS), key=lambda each: len(of[each])
    )
    for pattern in several[:_MOST_CANDIDATES]:
        names = frozenset(timeline.strings[name] for name in of[pattern])
        rows = annotated(timeline, names.__contains__)
        numbers = np.array([_numbers(timeline.strings[name]) for name in host.name[rows].tolist()])
        if len(rows) > 1 and (np.diff(numbers, axis=0) > 0).all(axis=0).any():
            yield pattern[0], rows


def _pattern(name: str) -> str:
    return _NUMBER.sub("*", name)


def _numbers(name: str) -> list[float]:
    return [min(float(digits), _MOST_NUMBER) for digits in _NUMBER.findall(name)]


def in_agreement(timeline: Timeline, found: Steps) -> Steps:
    """Returns the steps `found`, or in their place the occurrences of an annotation that the
    program puts around each step.

    The annotation considered is the one that encloses the most launches. It must enclose nearly all
    launches; if no annotation does, returns `found` unchanged.

    If this annotation occurs as often as the steps in `found`, or once more, returns its
    occurrences as steps. If it occurs more or less often than that, it may be an annotation around
    a layer or an epoch. Then returns `found`, with the name of the annotation as `hint`. So it does
    if `found` is the whole run.
    """
    launched = launch_times(timeline)
    best, most = None, 0.0
    names, count = np.unique(timeline.host.name[is_annotation(timeline)], return_counts=True)
    for name in names[(count > 1) & (count <= _MOST_REPEATS)][:_MOST_CANDIDATES]:
        rows = annotated(timeline, timeline.strings[name].__eq__)
        start, end = timeline.host.start[rows], timeline.host.end[rows]
        covered = _covered(launched, start, end)
        if len(rows) > 1 and covered >= max(ALIKE, most):
            best, most = steps_of(timeline, "annotation", timeline.strings[name], start, end), covered
    if best is None:
        return found
    alike = found.found_by != "whole" and len(found) <= len(best) <= len(found) + 1
    return best if alike else replace(found, hint=best.name)


def _covered(launched: I64, start: I64, end: I64) -> float:
    """Returns the share of the launches that are inside the spans of time [start, end). Returns 0
    if any span has no launches. `launched` has the times of the launches. All times are in ns.
    """
    within = np.searchsorted(launched, end) - np.searchsorted(launched, start)
    return int(within.sum()) / max(len(launched), 1) if (within > 0).all() else 0.0
