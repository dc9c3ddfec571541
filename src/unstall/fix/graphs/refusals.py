"""Why a function runs as it is and not as a CUDA graph, and which line of the program is the reason."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType

from unstall.fix.graphs.look.users import installed_path, is_library_file, is_users_file


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program. `function` is the one that it stands in, `library` the line of another package
    that it led to, where that is none of torch's: "transformers/masking_utils.py:812"."""

    file: str
    line: int
    function: str
    library: str = ""

    def __str__(self) -> str:
        through = f", through {self.library}" if self.library else ""
        return f"{Path(self.file).name}:{self.line} ({self.function}{through})"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason. `place` is None where no line of Python was running, as in backward. `waits`: that the host waits, be
    it for a copy that it makes: what a function may leave out while it is captured. `gainless`: a graph can be,
    and is no faster."""

    reason: str
    place: Place | None = None
    remedy: str = ""
    waits: bool = False
    gainless: bool = False

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return f"{where}{self.reason}" + (f"; {self.remedy}" if self.remedy else "")


def changing(what: str) -> Refusal:
    """Of what is another at each call, in words."""
    remedy = "pass it in as a tensor, or write into the same one; keep gradients with zero_grad(set_to_none=False)"
    if "param_groups" in what:
        remedy = "make it a tensor, as by lr=torch.tensor(0.001, device='cuda'): schedulers write into that"
    return Refusal(f"what it relies on changes between calls: {what}", None, remedy)


class Refused(Exception):  # noqa: N818 - it never leaves this room
    """Carries a refusal to where it is decided what to do instead."""

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__("; ".join(map(str, refusals)))
        self.refusals = refusals


def calling_place() -> Place | None:
    """The user's innermost line on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)
    library = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users_file(file):
            return Place(file, frame.f_lineno, frame.f_code.co_name, library)
        if not library and is_library_file(file):
            library = f"{installed_path(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def raising_place(error: BaseException) -> Place | None:
    """The user's innermost line in an error's traceback, and the innermost of a library that it led to."""
    found: Place | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_users_file(code.co_filename):
            found = Place(code.co_filename, trace.tb_lineno, code.co_name)
        elif found is not None and is_library_file(code.co_filename):
            found = replace(found, library=f"{installed_path(code.co_filename)}:{trace.tb_lineno}")
        trace = trace.tb_next
    return found


def calls_through(*parts: str) -> bool:
    """Whether a function of a file whose path has one of these parts is on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in parts):
            return True
        frame = frame.f_back
    return False
