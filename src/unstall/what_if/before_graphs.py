"""Orders a plan so that each change comes before the CUDA graph that needs it.

A CUDA graph cannot contain a wait, so the waits of a function are removed before the function is captured, even if the
graph gains more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from unstall.locate.capture_aware import leaves_waits_out
from unstall.what_if.edits import Edit, EditPlace
from unstall.what_if.model import Model
from unstall.what_if.predict import Prediction, predict
from unstall.what_if.subject import Subject

NEEDED = "first, since the graph below cannot contain it"
"""The note of a change that comes before a CUDA graph although the graph gains more."""


def in_order(model: Model, plan: Sequence[Prediction], rank: Callable[[Edit], Any]) -> list[Prediction]:
    """Returns the plan with its edits in the order in which a user can make them.

    Edits of what a CUDA graph would contain come before this graph, sorted by `rank`. All other edits keep their order.
    If an edit moves, all predictions are made again, since each is of what an edit gains after those before it.
    """
    edits = [made.edit for made in plan]
    ordered: list[Edit] = []
    moved: set[str] = set()
    while edits:
        edit = edits.pop(0)
        if _is_graph(edit):
            first = sorted((each for each in edits if _is_inside(model.subject, each, edit)), key=rank)
            edits = [each for each in edits if each not in first]
            ordered += first
            moved.update(each.text for each in first)
        ordered.append(edit)
    if not moved:
        return list(plan)
    return [
        replace(made, notes=(NEEDED, *made.notes)) if made.edit.text in moved else made
        for made in predict(model, ordered)
    ]


def _is_graph(edit: Edit) -> bool:
    return edit.text.partition(":")[0] == "graph"


def _is_inside(subject: Subject, edit: Edit, graph: Edit) -> bool:
    """Returns whether an edit changes something within what a CUDA graph is made of. Waits that code leaves out while
    it is captured do not count.
    """
    if _is_graph(edit):
        return False
    changed, captured = (
        subject.host_rows(each.argument if isinstance(each.argument, EditPlace) else None) for each in (edit, graph)
    )
    return bool((changed & captured & ~leaves_waits_out(subject.timeline)).any())
