"""Chooses the function to capture as a CUDA graph: one of the functions around a stretch of code
whose launches come too late.

A whole step is preferred to a part of the step. If a framework calls the model, the model's
`forward` is captured.
"""

from __future__ import annotations

from unstall.diagnose.beside_scaler import beside_scaler
from unstall.diagnose.late_launches import around, divide, function_place, model_forward
from unstall.diagnose.loops import goes_around_steps
from unstall.diagnose.rules.launch_bound import launch_bound
from unstall.diagnose.rules.tiny_kernels import tiny_kernels
from unstall.diagnose.run import Run
from unstall.replay.steady import steady_step_ns
from unstall.result import Finding
from unstall.what_if.edits import parse
from unstall.what_if.model import Model
from unstall.what_if.predict import WORTH

_RULES = ("launch-bound", "tiny-kernels")
_MOST_FUNCTIONS = 16
_FEWER = 0.02  # of the step: one graph may gain this much less than several
_LOOP = 0.2  # of the step: a function around the steps must gain this much more, since it cannot be captured as it is


def with_whole_graphs(run: Run, model: Model, findings: list[Finding]) -> list[Finding]:
    """Returns the findings. The finding of the rule `launch_bound` (launches come too late) is
    moved to the function whose CUDA graph gains most in a replay.

    Among functions that gain almost equally, the function that needs the fewest graphs is chosen.
    Among functions that also need equally many graphs, the innermost is chosen.

    A function that contains the loop over the steps, such as a script's `main`, cannot be captured
    as a whole. Only the part that each step runs can be captured. If a framework makes some of the
    launches, the function is the model's `forward`.

    Args:
        run: The recorded run.
        model: The replay of the run, and its error.
        findings: The findings of the run.
    """
    if beside_scaler(run) is not None:  # the rules have chosen the model
        return findings
    stretch = [finding for finding in findings if finding.rule == "launch-bound"]
    if len(stretch) == 1 and (forward := _only_the_model(run)) >= 0:
        return _moved(run, forward, findings)
    functions = around(run)[:_MOST_FUNCTIONS]
    if len(functions) < 2 or len(stretch) != 1 or not (stretch[0].edit or "").startswith("graph:"):
        return findings
    base = model.undistorted_step_ns
    best, edit = functions[0], stretch[0].edit or ""
    best_ns, fewest = _with(model, edit)
    for function in functions[1:]:
        place = function_place(run, function)
        if place is None or edit == f"graph:{place}":
            continue
        edit = f"graph:{place}"
        step_ns, graphs = _with(model, edit)
        around_steps = goes_around_steps(run, place)
        gained = best_ns - step_ns
        fewer = graphs < fewest and not around_steps and gained > -_FEWER * base
        if fewer or gained >= (_LOOP if around_steps else WORTH) * base:
            best, best_ns, fewest = function, step_ns, graphs
    if best == functions[0]:
        return findings
    return _moved(run, best, findings)


def _moved(run: Run, function: int, findings: list[Finding]) -> list[Finding]:
    others = [finding for finding in findings if finding.rule not in _RULES]
    return [*others, *launch_bound(run, function), *tiny_kernels(run, function)]


def _only_the_model(run: Run) -> int:
    """Returns the model's `forward`, as a row of `timeline.stacks`, if only the model can be captured, otherwise -1."""
    (late,) = divide(run)[0]
    option = run.framework_code.option_for("launch-bound", late.group.place, late.group.rows)
    return model_forward(run) if option is not None and option[1].of_model else -1


def _with(model: Model, edit: str) -> tuple[float, int]:
    """Returns (ns per step, number of graphs in all steps) after the edit."""
    edited = parse(edit).apply(model.subject)
    return steady_step_ns(edited.program), len(edited.graphs)
