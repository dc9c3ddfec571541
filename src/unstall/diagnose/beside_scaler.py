"""Says what can be captured as a CUDA graph in a step that runs torch's GradScaler.

GradScaler decides on the host whether the optimizer steps, so `unstall.graphed` captures none of its work. The model's
forward and backward passes can be captured.
"""

from __future__ import annotations

from dataclasses import dataclass

from unstall.diagnose.late_launches import below, function_place, innermost, model_forward
from unstall.diagnose.run import Run
from unstall.locate.grad_scaler import of_grad_scaler
from unstall.locate.graphed_model import is_around_a_graphed_model
from unstall.locate.tensor_cores import only_float16
from unstall.timeline.remembered import remembered

_WHY = "GradScaler decides on the host whether to step"
_WITHOUT = "; in bfloat16, which needs no GradScaler, capture the whole step"


@dataclass(frozen=True, slots=True)
class BesideScaler:
    """What to do about a function whose launches come late, and which runs a GradScaler.

    Attributes:
        forward: The model's `forward`, as the index of a row of `timeline.stacks`; None if the program calls no model,
            or if the model already runs as a CUDA graph.
        fix: The advice.
        edit: The edit that predicts the gain of the advice; None if there is none.
    """

    forward: int | None
    fix: str
    edit: str | None


@remembered
def beside_scaler(run: Run) -> BesideScaler | None:
    """Returns what to do if the user's innermost function that has most of the idle time runs a GradScaler. Returns
    None if it runs none.
    """
    node = innermost(run)
    rows = below(run, node).rows if node >= 0 else None
    if rows is None or not of_grad_scaler(run.timeline)[rows].any():
        return None
    without = "" if only_float16(run.timeline) else _WITHOUT
    if is_around_a_graphed_model(run.places, rows):
        return BesideScaler(
            None, f"the model already runs as a CUDA graph, and none can contain the rest: {_WHY}{without}", None
        )
    forward = model_forward(run)
    place = function_place(run, forward) if forward >= 0 else None
    if place is None:
        return BesideScaler(
            None,
            "put what computes the loss into a function, and capture that in a CUDA graph (unstall.graphed). The calls "
            f"of backward() and of the scaler stay outside, as {_WHY}{without}",
            "graph",
        )
    return BesideScaler(
        forward,
        "capture the model alone in a CUDA graph: model.forward = unstall.graphed(model.forward). The loss, and the "
        f"calls of backward() and of the scaler stay outside, as {_WHY}{without}",
        f"graph:{place}",
    )
