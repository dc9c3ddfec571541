"""Works out what each resource costs: how much shorter a step would be if the resource took no time."""

from __future__ import annotations

from collections.abc import Mapping
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
"""For each resource, the edit that makes it take no time, in the form that `unstall whatif --edit` takes."""


def if_free(subject: Subject, step_ns: float) -> dict[str, float]:
    """Replays a run once for each resource, each time with only this one taking no time.

    Args:
        subject: The run.
        step_ns: The step time of the replayed run without edits, in ns.

    Returns:
        A dict. A key is the name of a resource. Its value is by how many ns a step would be
        shorter; negative if it would be longer.
    """
    gains = {}
    for name, edit in EDIT_OF.items():
        program = parse(edit).apply(subject).program
        gains[name] = 0.0 if _same(program, subject.program) else step_ns - steady_step_ns(program)
    return gains


def _same(a: Program, b: Program) -> bool:
    """Returns whether two programs have equal columns, so that their replays take the same time."""
    tables = ((a.instructions, b.instructions), (a.ops, b.ops))
    columns = [(getattr(one, name), getattr(other, name)) for one, other in tables for name in one.__struct_fields__]
    return all(one is other or np.array_equal(one, other) for one, other in columns)
