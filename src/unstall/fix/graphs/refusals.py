"""Reasons why a function runs eagerly and not as a CUDA graph, each with its line in the program."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType

from unstall.errors import GraphedError
from unstall.fix.graphs.examine.users_code import installed_path, is_library_file, is_users_file

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class UserLine:
    """A line of the user's program.

    Attributes:
        file: The path of the source file.
        line: The line number.
        function: The name of the function that contains the line.
        library: The innermost line of an installed package that was running, called from the user's line, such as
            "transformers/masking_utils.py:812". Frameworks such as torch do not count. "" if there is no such line.
    """

    file: str
    line: int
    function: str
    library: str = ""

    def __str__(self) -> str:
        through = f", through {self.library}" if self.library else ""
        return f"{Path(self.file).name}:{self.line} ({self.function}{through})"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why a function cannot, or should not, become a CUDA graph.

    Attributes:
        reason: The reason, as a clause.
        place: The line of the user's program at which the reason was found. None if the reason concerns no single line,
            or if no Python line was running, as in a backward pass.
        remedy: What the user can do, or "" if no remedy is known.
        waits: Whether the reason is a wait of the host for the device. Some functions do not wait while they are
            captured.
        gainless: Whether a graph is possible but not faster.
    """

    reason: str
    place: UserLine | None = None
    remedy: str = ""
    waits: bool = False
    gainless: bool = False

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return f"{where}{self.reason}" + (f"; {self.remedy}" if self.remedy else "")


def changing(what: str) -> Refusal:
    """Returns the reason for a function that cannot become a graph because it relies on state that changes between
    calls. `what` describes such a change."""
    remedy = "pass it in as a tensor, or write into the same one; keep gradients with zero_grad(set_to_none=False)"
    if "param_groups" in what:
        remedy = "make it a tensor, as by lr=torch.tensor(0.001, device='cuda'): schedulers write into that"
    return Refusal(f"what it relies on changes between calls: {what}", None, remedy)


def always_new(calls: int, before: Shapes, now: Shapes) -> Refusal:
    """Returns the reason for a function that gains nothing from graphs because each of its last calls had other
    arguments.

    Args:
        calls: The number of consecutive calls with other arguments.
        before: The shapes of the tensors in the second-to-last call.
        now: The shapes of the tensors in the last call.
    """
    pairs = zip(before, now, strict=False)
    differing = next(((one, other) for one, other in pairs if one != other), None)
    if differing is None:
        what = "numbers, strings or objects among them are others at each call"
        remedy = "pass numbers that change as tensors, and the same objects"
    else:
        what = f"sizes change, as from {_sizes(differing[0])} to {_sizes(differing[1])}"
        remedy = (
            "pad them to a few sizes, or write what grows, as a cache of keys and values, into a tensor of one size"
        )
    reason = f"each of {calls} calls in a row had other arguments, and a graph serves only its own: {what}"
    return Refusal(reason, None, remedy, gainless=True)


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


class Refused(Exception):  # noqa: N818 - it never leaves fix/graphs
    """Raised if a function cannot become a CUDA graph. The reasons may be found while its calls are observed, while it
    is captured, or while the graph is checked.

    Attributes:
        refusals: The reasons.
    """

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__("; ".join(map(str, refusals)))
        self.refusals = refusals


class ReportedRefusals:
    """Reports the reasons why calls of a function run eagerly and not as a graph. Each reason is shown once as a
    warning, or raised as an error if `strict` is True.

    Args:
        name: The name of the function in the messages.
        strict: Whether to raise errors.

    Attributes:
        reasons: The reasons that were reported.
    """

    def __init__(self, name: str, *, strict: bool) -> None:
        self.reasons: list[Refusal] = []
        self._name = name
        self._strict = strict

    def report(self, refusal: Refusal, cause: Exception | None = None) -> None:
        """Warns that calls of the function run eagerly. Warns only once for each reason.

        Args:
            refusal: The reason.
            cause: The exception that led to it. None if there is none.

        Raises:
            GraphedError: `strict` was set. If the reason is that a graph is possible but not faster, a warning is shown
                instead.
        """
        known = refusal in self.reasons
        if not known:
            self.reasons.append(refusal)
        message = f"{self._name} runs as it is: {refusal}"
        if self._strict and not refusal.gainless:
            raise GraphedError(message) from cause
        if not known:
            caller = calling_place()
            file, line = (caller.file, caller.line) if caller else ("<unknown>", 1)
            warnings.warn_explicit(message, RuntimeWarning, file, line)

    def repeat(self, refusal: Refusal) -> None:
        """Reports a reason again, for another call. Raises GraphedError if `strict` was set."""
        if self._strict:
            self.report(refusal)

    def withdraw(self, refusal: Refusal) -> None:
        """Removes a reason from `reasons`, because it has turned out to be wrong. Does nothing if it was not
        reported."""
        if refusal in self.reasons:
            self.reasons.remove(refusal)


def calling_place() -> UserLine | None:
    """Returns the innermost line of the user's code on this thread's stack, or None if there is no such line."""
    frame: FrameType | None = sys._getframe(1)
    library = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users_file(file):
            return UserLine(file, frame.f_lineno, frame.f_code.co_name, library)
        if not library and is_library_file(file):
            library = f"{installed_path(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def failure(what: str, error: Exception) -> Refusal:
    """Returns the refusal of a call that an unexpected exception, such as too little memory, kept from being captured,
    checked or padded. `what` is that word."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Refusal(f"it could not be {what}: {said}", raising_place(error))


def raising_place(error: BaseException) -> UserLine | None:
    """Returns the innermost line of the user's code in the traceback of an error, or None if there is no such line. The
    attribute `library` of the result is the innermost library line that the user's line called."""
    found: UserLine | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_users_file(code.co_filename):
            found = UserLine(code.co_filename, trace.tb_lineno, code.co_name)
        elif found is not None and is_library_file(code.co_filename):
            found = replace(found, library=f"{installed_path(code.co_filename)}:{trace.tb_lineno}")
        trace = trace.tb_next
    return found


def calls_through(*parts: str) -> bool:
    """Returns whether the stack of this thread has a frame from a file whose path contains one of `parts`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in parts):
            return True
        frame = frame.f_back
    return False
