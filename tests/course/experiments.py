"""Experiments of the course that were not run, to look at how they are shown."""

from __future__ import annotations

from unstall.course.result import Experiment
from unstall.course.row import Row


def not_run(name: str, row: Row, learn: str = "", change: str = "") -> Experiment:
    return Experiment(
        name=name,
        number=row.number,
        question=row.question,
        gpu="t4",
        output="",
        said="",
        failure="",
        figures=(),
        checks=(),
        learn=learn,
        change=change,
    )
