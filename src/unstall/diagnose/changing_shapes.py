"""Finds launches whose shapes change in each step. One CUDA graph cannot replay them, because it has fixed shapes."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from math import prod

import msgspec
import numpy as np

from unstall.diagnose.loops import holds_the_loop
from unstall.diagnose.run import Group, Run
from unstall.figures import counted
from unstall.timeline.columns import I32, I64, HostKind
from unstall.timeline.grouping import distinct, groups

_FEWEST = 3  # shapes; a change that happens once or twice, as at a last batch, is no rule
_MANY = 0.1  # of the launches: around fewer, a graph can hold the rest
_MOSTLY = 0.5  # of the steps: shapes that recur more often are captured once each
_SHOWN = 3
_MOST_DIMENSIONS = 8
_NUMBER = re.compile(r"\d{1,18}")
_SHAPE = re.compile(r"\[([\d,\s]*)\]")


class ChangingShapes(msgspec.Struct, frozen=True):
    """How the shapes of a group of launches change from step to step.

    Attributes:
        how: "grow" if those of the example do in each step, else "change".
        saw: What was observed, with an example.
    """

    how: str
    saw: str

    @property
    def of_work(self) -> str:
        """The end of a finding's title."""
        return f" work whose shapes {self.how}"

    @property
    def do(self) -> str:
        """What to do before a capture."""
        return (
            f'pad what {self.how}s to one length (or to a few: unstall.graphed(…, shapes="bucket")), since a graph has '
            "fixed shapes, and the gain is of that"
        )


def changing_shapes(run: Run, group: Group) -> ChangingShapes | None:
    """Returns how the shapes of some launches change from step to step. Returns None if they do not, if they recur in
    later steps, or if this is unknown.

    If no input shapes of operators were recorded, the kernels and their grids are compared instead. In a run without
    steps, the repetitions of its launches are compared, if they are of a loop and not of layers.

    Args:
        run: The recorded run.
        group: The launches, with their source line.
    """
    steps = _by_step(run, group)
    if len(steps) < _FEWEST:
        return None
    tokens, shapes = _tokens(run, steps)
    if not _mostly(len({step.tobytes() for step in tokens}), len(steps)):
        return None
    unit = "step" if len(run.steps) > 1 else "repetition"
    if len({len(step) for step in tokens}) > 1:
        others = [sum((Counter(this.tolist()) - Counter(last.tolist())).values()) for last, this in pairwise(tokens)]
        usual, of = int(np.median(others)), int(np.median([len(step) for step in tokens[1:]]))
        what = counted(of, "launch" if shapes is None else "operator")
        saw = f"in each {unit} about {usual:,} of {what} are of other shapes or kernels than in the {unit} before"
        return ChangingShapes("change", saw) if usual >= _MANY * of else None
    table = np.stack(tokens)
    ordered = np.sort(table, axis=0)
    varied = 1 + (ordered[1:] != ordered[:-1]).sum(axis=0)
    changing = np.flatnonzero([_mostly(count, len(steps)) for count in varied.tolist()])
    if len(changing) < _MANY * table.shape[1] or not len(changing):
        return None
    text = run.timeline.text
    first = np.array([step[changing[0]] for step in steps])
    if shapes is None:
        sizes, name, kind = _grids(run, first), "", "grids"
        many = f"{len(changing):,} of {counted(table.shape[1], 'launch')}"
    else:
        sizes, kind = _one_shape([text(int(shapes[row])) for row in first]), "input shapes"
        name = f"{text(int(run.timeline.host.name[first[0]]))} "
        many = f"{len(changing):,} of {counted(table.shape[1], 'operator')}"
    grows = len(sizes) > 1 and all(_size(low) < _size(high) for low, high in pairwise(sizes))
    how = "grow" if grows else "change"
    example = f" ({name}{', '.join(sizes[:_SHOWN])}, …)" if sizes else ""
    return ChangingShapes(how, f"in each {unit} the {kind} of {many} {how}{example}")


def _mostly(distinct: int, steps: int) -> bool:
    return distinct >= _FEWEST and distinct > _MOSTLY * steps


def _by_step(run: Run, group: Group) -> list[I64]:
    """Returns the launches of each step, in order: rows of `timeline.host`, operators in place of their launches."""
    host = run.timeline.host
    rows = group.rows[np.lexsort((host.start[group.rows], host.thread[group.rows]))]
    if len(run.steps) > 1:
        step = np.searchsorted(run.steps.start, host.start[rows], side="right") - 1
    elif run.steps.repeats is not None and holds_the_loop(run, group):
        period, times = run.steps.repeats
        calls = np.flatnonzero(run.inside & (host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.MEMSET))
        calls = calls[np.argsort(host.start[calls], kind="stable")]
        place = np.zeros(len(host), np.int64)
        place[calls] = times - 1 - np.arange(len(calls))[::-1] // period  # from the end: the loop's set-up comes first
        step = place[rows]
    else:
        return []
    rows, step = rows[step >= 0], step[step >= 0]
    op = np.where(host.op[rows] >= 0, host.op[rows], rows)
    kept = np.append(True, (op[1:] != op[:-1]) | (step[1:] != step[:-1])) if len(op) else op >= 0
    return [op[kept][mine].astype(np.int64) for _, mine in groups(step[kept])]


def _tokens(run: Run, steps: list[I64]) -> tuple[list[I64], I32 | None]:
    """Returns (tokens, shapes): for each step a number for each of its launches, equal for equal ones; and the column
    of input shapes, or None if none were recorded.
    """
    host, rows = run.timeline.host, np.concatenate(steps)
    known = bool((host.shapes[rows] >= 0).any())
    if known:
        columns = [host.shapes[rows]]
    else:
        device, op = run.timeline.device, _first_ops(run, rows)
        columns = [np.where(op >= 0, each[op], -1) for each in (device.name, device.blocks, device.bytes)]
    token = distinct(host.name[rows])[1].astype(np.int64)
    for column in columns:
        values, number = distinct(column)
        token = distinct(token * len(values) + number)[1].astype(np.int64)
    return np.split(token, np.cumsum([len(step) for step in steps])[:-1]), host.shapes if known else None


def _first_ops(run: Run, rows: I64) -> I64:
    """Returns the first device op of each event, an operator or a launch; -1 for those without."""
    host, launch = run.timeline.host, run.timeline.device.launch
    first = np.full(len(host) + 1, -1, np.int64)
    known = np.flatnonzero(launch >= 0)[::-1]
    first[launch[known]] = known
    first[host.op[launch[known]]] = known  # the last entry is of launches without an operator
    return first[rows]


def _grids(run: Run, rows: I64) -> list[str]:
    op = _first_ops(run, rows)
    blocks = run.timeline.device.blocks[op]
    return [counted(int(each), "block") for each in blocks] if (op >= 0).all() and (blocks >= 0).all() else []


def _one_shape(texts: list[str]) -> list[str]:
    """Returns the shape of the first argument whose shape changes, in each of `texts`; [] if there is none."""
    shapes = [_SHAPE.findall(each) for each in texts]
    for several in zip(*shapes, strict=False):
        if len(set(several)) > 1:
            return ["x".join(_NUMBER.findall(each)[:_MOST_DIMENSIONS]) or "a scalar" for each in several]
    return []


def _size(shape: str) -> int:
    return prod(int(each) for each in _NUMBER.findall(shape))
