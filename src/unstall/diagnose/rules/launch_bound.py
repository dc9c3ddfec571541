"""Finds stretches of code in which the host launches kernels more slowly than the device runs them,
so that the device is idle between short kernels.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.beside_scaler import BesideScaler, beside_scaler
from unstall.diagnose.changing_shapes import changing_shapes
from unstall.diagnose.graphed_checks import remedy_without_graph
from unstall.diagnose.late_launches import Late, divide, function_place, innermost, usual_length
from unstall.diagnose.loops import holds_the_loop, lines_of
from unstall.diagnose.run import Group, Run
from unstall.figures import counted, share
from unstall.locate.engine import models
from unstall.locate.functions import functions
from unstall.result import Finding
from unstall.timeline.columns import I64, HostKind

_MOSTLY = 0.5
_MOST_LINES = 3
_NOTABLE = 0.1  # of the idle time
_SHORTER = "fuse small operators; use a larger batch"
_SAFE_IF = "shapes are fixed, and the host reads no values within the graph"
_FAR_AHEAD = 2  # ops queued: fewer are not worth mentioning


def launch_bound(run: Run, function: int | None = None) -> list[Finding]:
    """Returns a finding for a function whose launches come so late that the device is idle. A CUDA
    graph of this function would help.

    If the host is late only after pauses, and a graph of the function gains hardly any time, the
    finding is marked as harmless. If the recording has no stacks, each of the costliest lines or
    operators has a finding. If series of tiny kernels have most of the idle time, there is no
    finding, because the rule `tiny_kernels` reports them.

    Args:
        run: The recorded run.
        function: The function, as the index of a row of `timeline.stacks`. If None, the innermost
            function that has most of the idle time, or the model if that function runs a
            GradScaler, too.
    """
    lost, scaled = run.lost_to("launch"), beside_scaler(run)
    if function is None and scaled is not None:
        function = scaled.forward
    return [_finding(run, late, lost, function, scaled) for late in divide(run, function)[0]]


def _finding(run: Run, late: Late, lost: I64, function: int | None, scaled: BesideScaler | None) -> Finding:
    group = late.group
    exposed = int(lost[group.rows].sum())
    of_package = _is_model_of_a_package(run, group, function)
    fix, safe_if, edit = _remedy(run, group, scaled, of_package=of_package)
    if edit == "graph" and function is not None and not run.places.is_user_frame[function]:
        edit = f"graph:{function_place(run, function)}"
    shapes = changing_shapes(run, group) if edit else None
    if shapes:
        fix = f"{shapes.do}; then {fix}"
    rate = f"{counted(len(group.rows), 'launch')}, of ops that take {usual_length(run, group.rows)}"
    return run.finding(
        "launch-bound",
        group,
        title=f"The device waits for the host to dispatch{shapes.of_work if shapes else ''}",
        saw="; ".join(
            [
                *([shapes.saw] if shapes else []),
                rate,
                _how_late(run, group, lost),
                *_of_torch(run, group, exposed),
                *_mostly_at(run, group, lost),
            ]
        ),
        fix=fix,
        safe_if=safe_if,
        total_exposed_ns=exposed,
        total_wait_ns=0,
        count=len(group.rows),
        edit=edit,
        harmless=late.restarts,
        leaves_packages=scaled is not None or of_package,
        spans=run.idle_spans(group.rows, "launch"),
    )


def _is_model_of_a_package(run: Run, group: Group, function: int | None) -> bool:
    """Returns whether the function to capture is the `forward` of a model whose code is in an installed package."""
    node = innermost(run) if function is None else function
    if node < 0 or run.framework_code.package_of(run.where(group).file) is None:
        return False
    model, of = models(run.places)[node], functions(run.timeline)
    return bool(model >= 0 and of.row[model] == of.row[node])


def _how_late(run: Run, group: Group, lost: I64) -> str:
    """Returns a text that says how many launches came after the device had run out of work.

    Other launches came in time. If several ops were still queued at these launches, the text also gives the median
    number of queued ops.
    """
    calls, depth = run.launch_depth
    others = depth[np.isin(calls, group.rows[lost[group.rows] == 0])]
    late = len(group.rows) - len(others)
    text = f"{counted(late, 'launch')} came after the device had run out of work"
    queued = int(np.median(others)) if len(others) else 0
    return text + (f", the others with {queued:,} ops still queued (median)" if queued >= _FAR_AHEAD else "")


def _of_torch(run: Run, group: Group, exposed: int) -> list[str]:
    """Returns a text that says in how much of the idle time torch's own Python code ran for long without an operator.
    Returns [] if that is little. `exposed` is the idle time of the group, in ns.
    """
    late = run.idle_of(group.rows, "launch")
    own = int(run.activity.torchs_own.covered(run.gaps.start[late], run.gaps.end[late]).sum())
    if own < _NOTABLE * exposed:
        return []
    return [
        f"{share(own, exposed)} of the idle time is torch's own Python code between two operators (calls of modules, "
        "the optimizer, the start of a backward pass)"
    ]


def _mostly_at(run: Run, group: Group, lost: I64) -> list[str]:
    """Returns texts that name where most of the idle time is: lines of the group's function, and functions that this
    function calls.

    The finding's own line is left out. Two functions with the same name in a file can be distinguished only if the
    recorder knew which lines ran.
    """
    exposed, own = int(lost[group.rows].sum()), run.where(group)
    parts = sorted(
        ((int(lost[part.rows].sum()), run.where(part)) for part in run.lines(group.rows)), key=lambda part: -part[0]
    )
    lines, callees = [], []
    for cost, at in [part for part in parts[:_MOST_LINES] if part[0]] if len(parts) > 1 else ():
        if at.line_is == "exact" and (at.file, at.function) == (own.file, own.function):
            lines += [f"{at.line} {share(cost, exposed)}"] if at.line != own.line else []
        elif at.file and at.function != own.function:  # of one name, only the table of lines tells them apart
            callees.append(f"{at.function} ({at.file}:{at.line}) {share(cost, exposed)}")
    told = {"other lines": lines, "callees": callees}
    return [f"{each} with most of the idle time: {', '.join(shares)}" for each, shares in told.items() if shares]


def _remedy(run: Run, group: Group, scaled: BesideScaler | None, *, of_package: bool) -> tuple[str, str, str | None]:
    """Returns (fix, safe_if, edit): the advice, the condition under which the advice is safe, and the what-if edit.

    The edit predicts the gain of the advice. It is None if most of the group's launches are graph launches.
    `scaled` is what `beside_scaler` returns, and `of_package` what `_is_model_of_a_package` returns.
    """
    replayed = run.timeline.host.kind[group.rows] == HostKind.GRAPH_LAUNCH
    if replayed.mean() > _MOSTLY:
        return (
            "launch the next replay before this one has ended (no wait in between); put more into one graph",
            "a replay's inputs are not overwritten before it has read them",
            None,
        )
    without = remedy_without_graph(run, group.rows)
    if scaled is not None and (without is None or without[1]):  # whether `unstall.graphed` was tried or not
        return f"{scaled.fix}; {_SHORTER}", _SAFE_IF, scaled.edit
    if max(_in_graphs(run, run.ops_of(group.rows)), _in_graphs(run, np.flatnonzero(run.ops_inside))) > _MOSTLY:
        return (
            f"capture the {counted(int((~replayed).sum()), 'launch')} outside of the CUDA graphs that already run "
            "here, too, or make them while a graph runs; launch the next replay before this one has ended (no wait in "
            "between)",
            "shapes are fixed, the host reads nothing within the captured part, and a replay's inputs are not "
            "overwritten before it has read them",
            "graph",
        )
    if without:
        why, edit = without
        return f"{why}; {_SHORTER}", "the fused version is numerically good enough (rounding may differ)", edit
    holds = holds_the_loop(run, group)
    what = "capture these operators" if holds is False else _cut_out(run, group, maybe=holds is None)
    how = "unstall.graphed"
    if of_package:
        what, how = "capture the model", "model.forward = unstall.graphed(model.forward)"
    return (
        f"{what} in a CUDA graph ({how}), or use torch.compile(mode='reduce-overhead'); {_SHORTER}",
        _SAFE_IF,
        "graph",
    )


def _cut_out(run: Run, group: Group, *, maybe: bool) -> str:
    """Returns the advice for a function that cannot be captured unchanged, because it contains the loop over the steps.

    If `maybe` is True, it is not certain that the function contains the loop.
    """
    lines = lines_of(run, group)
    what = f"put what each step does here{f' ({lines})' if lines else ''} into a function"
    if maybe:
        return f"{what}, unless {run.where(group).function} is that already, and capture it"
    return f"{what}, and capture that"


def _in_graphs(run: Run, ops: I64) -> float:
    """Returns the share of the device ops `ops` that belong to CUDA graphs."""
    launch = run.timeline.device.launch[ops]
    known = launch[launch >= 0]
    return float((run.timeline.host.kind[known] == HostKind.GRAPH_LAUNCH).mean()) if len(known) else 0.0
