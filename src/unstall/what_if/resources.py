"""Computes the cost of each resource: how much shorter a step would be if the resource took no time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

import numpy as np

from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.what_if.edits import parse
from unstall.what_if.subject import Subject

EDIT_OF: Mapping[str, str] = MappingProxyType(
    {
        "host": "host-speed:inf",
        "kernels": "kernel-speed:inf",
        "copies": "copy-speed:inf",
        "communication": "comm-speed:inf",
        "waits": "remove-syncs",
        "input": "input-speed:inf",
        "allocator": "keep-cache",
        "startup": "startup-speed:inf",
        "sleep": "sleep-speed:inf",
    }
)
"""The edit that makes each resource take no time. The text has the form of the option `unstall whatif --edit`."""


def if_free(subject: Subject, step_ns: float) -> dict[str, float]:
    """Replays a run once for each resource. In each replay, only this one resource takes no time.

    Args:
        subject: The run.
        step_ns: The step time of the unedited run in the replay, in ns.

    Returns:
        A dict. The key is the name of a resource. The value is the number of ns by which a step would be shorter. The
        value is negative if the step would be longer.
    """
    gains = {}
    for name, edit in EDIT_OF.items():
        program = parse(edit).apply(subject).program
        gains[name] = 0.0 if _same(program, subject.program) else step_ns - steady_step_ns(program)
    return gains


def _same(a: Program, b: Program) -> bool:
    """Returns whether two programs have equal columns. If the columns are equal, a replay of both programs takes the
    same time."""
    tables = ((a.instructions, b.instructions), (a.ops, b.ops))
    columns = [(getattr(one, field.name), getattr(other, field.name)) for one, other in tables for field in fields(one)]
    return all(one is other or np.array_equal(one, other) for one, other in columns)
