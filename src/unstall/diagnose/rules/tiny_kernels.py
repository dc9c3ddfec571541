"""Finds lines that launch many tiny kernels in a row, such as an unfused optimizer or a chain of
elementwise operators.
"""

from __future__ import annotations

import msgspec

from unstall.diagnose.beside_scaler import BesideScaler, beside_scaler
from unstall.diagnose.changing_shapes import changing_shapes
from unstall.diagnose.graphed_checks import remedy_without_graph
from unstall.diagnose.late_launches import TINY_ROW, divide, usual_length
from unstall.diagnose.run import Group, Run
from unstall.locate.grad_scaler import of_grad_scaler
from unstall.result import Finding

_MOSTLY = 0.5
_CAPTURE = "capture them in a CUDA graph (unstall.graphed)"


def tiny_kernels(run: Run, function: int | None = None) -> list[Finding]:
    """Returns a finding for each line that launches many tiny kernels in a row. Lines that the rule
    `launch_bound` reports are left out.

    The finding's exposed time is the part of the idle time between these kernels that is due to
    launches and latency. Its gain is that of a CUDA graph, which also captures launches of other
    lines. The advice says so.

    Args:
        run: The recorded run.
        function: The function that the rule `launch_bound` reports, as the index of a row of
            `timeline.stacks`. If None, it is found in the same way as that rule finds it.
    """
    scaled = beside_scaler(run)
    if function is None and scaled is not None:
        function = scaled.forward
    found = [_finding(run, group, scaled) for group in divide(run, function)[1]]
    return [msgspec.structs.replace(each, fix=f"{each.fix}{_whose_gain(each)}") for each in found]


def _finding(run: Run, group: Group, scaled: BesideScaler | None) -> Finding:
    without = remedy_without_graph(run, group.rows)
    capture, edit = _graph(run, group, scaled) if without is None or (scaled is not None and without[1]) else without
    saw = f"{len(group.rows):,} kernels of {usual_length(run, group.rows)}, in runs of {TINY_ROW} or more"
    if edit and (shapes := changing_shapes(run, group)):
        capture, saw = f"or {shapes.do}; then {_CAPTURE}", f"{saw}; {shapes.saw}"
    return run.finding(
        "tiny-kernels",
        group,
        title="Many tiny kernels in a row",
        saw=saw,
        fix="fuse them: torch.compile; foreach=True or fused=True for optimizers; torch._foreach_* for lists "
        f"of tensors; one large operator instead of a loop; {capture}",
        safe_if="the fused version is numerically good enough (rounding may differ); for a CUDA graph, shapes "
        "are fixed and the host reads nothing within",
        total_wait_ns=0,
        total_exposed_ns=int(run.lost_to("launch", "latency")[group.rows].sum()),
        count=len(group.rows),
        edit=edit,
        confidence="medium",
        spans=run.idle_spans(group.rows, "launch", "latency"),
    )


def _graph(run: Run, group: Group, scaled: BesideScaler | None) -> tuple[str, str | None]:
    """Returns the advice to capture the group's kernels in a CUDA graph, and its edit. `scaled` is what `beside_scaler`
    returns.
    """
    if of_grad_scaler(run.timeline)[group.rows].mean() > _MOSTLY:
        return "no CUDA graph can contain them, as GradScaler decides on the host whether to step", None
    return (f"or {_CAPTURE}", "graph") if scaled is None else (f"or {scaled.fix}", scaled.edit)


def _whose_gain(finding: Finding) -> str:
    """Returns a sentence that says which change gives a finding's gain. Returns "" if the finding has no edit."""
    if finding.edit is None:
        return ""
    function = finding.edit.partition(":")[2].rpartition(":")[2]
    whole = f"all that {function} launches" if function else "the whole step"
    return f". The gain is for a CUDA graph of {whole}, not of this line alone"
