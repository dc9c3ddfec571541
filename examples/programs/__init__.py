"""Small programs that stall on purpose, so that the cause of every idle nanosecond is known beforehand.

Each is one function with `@program(…)`: it sets up, and returns a `Run`: the step that stalls, what a
report on it must find and where, and, where that is simple, the same step mended. `record.py` measures
and records them. A line that stalls ends in `# stalls`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Step: TypeAlias = Callable[[], object]
Place: TypeAlias = dict[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that a report must find. `op` is the outermost operator that the line calls."""

    finding: str
    function: Callable[..., object] | None = None
    op: str | None = None
    mark: int = 0  # which of the function's marked lines
    costs: bool | None = True  # False: it is there, and the device does not idle for it; None: it may or may not

    def place(self) -> Place:
        """Where it is: the `def` line is what torch's stacks carry, `line` the one that really stalls."""
        if self.function is None:
            return {"file": None, "function": None, "def_line": None, "line": None}
        path = Path(inspect.getfile(self.function))
        roots = [root for root in sys.path if root and path.is_relative_to(root)]
        lines, first = inspect.getsourcelines(self.function)
        stalls = [first + i for i, text in enumerate(lines) if text.rstrip().endswith("# stalls")]
        return {
            "file": path.relative_to(max(roots, key=len)).as_posix(),
            "function": self.function.__name__,
            "def_line": self.function.__code__.co_firstlineno,
            "line": stalls[self.mark] if stalls else None,
        }


@dataclass(frozen=True, slots=True)
class Run:
    """A program that is set up and can be stepped."""

    step: Step
    bound_by: tuple[str, ...]  # verdicts that are right for the recorded run
    causes: tuple[Cause, ...] = ()
    mended: Step | None = None  # the same work without the stall
    alone: dict[str, Step] = field(default_factory=dict)  # parts of the step to be timed one by one


@dataclass(frozen=True, slots=True)
class Program:
    """A program and how it is recorded."""

    make: Callable[[], Run]
    name: str
    about: str
    steps: int = 3
    annotated: bool = True  # with ProfilerStep#n, as `profiler.step()` leaves them
    found_by: str = "annotation"
    step_name: str | None = None  # the annotation that marks a step, where it is not the profiler's
    fresh: bool = False  # recorded from the process's first CUDA call on
    memory: bool = False  # with allocator events
    gpus: int = 1
    ranks: int = 1
    also: tuple[str, ...] = ()  # recorded again without "stacks", "syncs" or "device" activity


PROGRAMS: dict[str, Program] = {}


def program(
    *,
    steps: int = 3,
    annotated: bool = True,
    found_by: str = "annotation",
    step_name: str | None = None,
    fresh: bool = False,
    memory: bool = False,
    gpus: int = 1,
    ranks: int = 1,
    also: tuple[str, ...] = (),
) -> Callable[[Callable[[], Run]], Callable[[], Run]]:
    """Register the function below under its own name. The arguments are `Program`'s."""

    def register(make: Callable[[], Run]) -> Callable[[], Run]:
        about = inspect.cleandoc(make.__doc__ or "").replace("\n", " ")
        PROGRAMS[make.__name__] = Program(
            make,
            make.__name__,
            about,
            steps,
            annotated,
            found_by,
            step_name,
            fresh,
            memory,
            gpus,
            ranks,
            also,
        )
        return make

    return register


def load_all() -> dict[str, Program]:
    """Import every file beside this one and give the programs by name, in the order of the files."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return PROGRAMS
