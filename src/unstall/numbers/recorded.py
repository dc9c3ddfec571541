"""Compares the recorded numbers of two runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from unstall.numbers import files
from unstall.numbers.answer import Numbers, Row
from unstall.numbers.classes import class_of_runs
from unstall.numbers.files import Recorded
from unstall.numbers.reasons import about_cut
from unstall.rounding.judge import Errors, Judge
from unstall.rounding.samples import Floats, Ran, Seen

_UNKNOWN = (
    "Neither file knows what rounding explains. A file of `unstall numbers --record` does. `first` is the first tensor "
    "whose bits differ."
)


def compare_recorded(before: Path, after: Path) -> Numbers:
    """Compares two files that `recording_numbers` or `unstall numbers --record` wrote.

    One of the files must contain the effect of rounding, as files of `unstall numbers --record` do. If neither file
    contains it, the verdict is "equal" or "unknown". An "unknown" verdict names the first tensor whose bits differ.

    Raises:
        TraceError: A file is not a recording of numbers.
        OSError: A file cannot be read.
    """
    first, second = (before, files.read(before)), (after, files.read(after))
    if first[1].errors is None and second[1].errors is not None:
        first, second = second, first
    (path, one), (other_path, other) = first, second
    name = other_path.name if other_path.name != path.name else str(other_path)
    return Numbers((_row(name, one, other),), len(one.ran), f"the run in {path.name}")


def _row(name: str, one: Recorded, other: Recorded) -> Row:
    after = with_names_of(one.ran, other.ran)
    found = Judge(one.ran, one.errors or _no_errors(one.ran)).compare(after)
    if one.errors is not None or found.equal:
        kind, sentence = class_of_runs(found, one.ran, is_repeat=False)
        return Row(name, found, kind, sentence + about_cut(one.ran, other.ran))
    return Row(name, replace(found, first=found.other_bits, last=None, added=()), "unknown", _UNKNOWN)


def with_names_of(before: Ran, after: Ran) -> Ran:
    """Returns a copy of the run `after` in which values have the same names as in the run `before`.
    A value's name contains the text of a source line, which may have changed between the runs.

    Returns `after` itself if the runs have different numbers of values.
    """
    names = [[key for key in ran.ends if key[0] == "value"] for ran in (before, after)]
    if len(names[0]) != len(names[1]):
        return after
    renamed = dict(zip(names[1], names[0], strict=True))
    ends = {renamed.get(key, key): seen for key, seen in after.ends.items()}
    return replace(after, ends=ends)


def _no_errors(ran: Ran) -> Errors:
    def none(seen: Seen) -> Floats:
        return np.zeros(len(seen.values) + 1)

    return Errors(tuple(map(none, ran.operators)), {key: none(seen) for key, seen in ran.ends.items()})
