"""The settings of a recording. They reach the program's process as text in an environment variable."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias, get_args

from unstall.errors import UsageError
from unstall.guest.step_source import USUAL_WARMUP

RecorderName: TypeAlias = Literal["auto", "cupti", "torch"]
LineClockName: TypeAlias = Literal["auto", "calls", "monitoring", "settrace", "none"]
RECORDERS: tuple[RecorderName, ...] = get_args(RecorderName)
LINE_CLOCKS: tuple[LineClockName, ...] = get_args(LineClockName)
FOLDER_PREFIX = "unstall-"
"""The beginning of the name of a recording's temporary folder."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one recording.

    Attributes:
        folder: The folder to which the program's process writes the recording.
        recorder: The name of the recorder, or "auto".
        warmup: Number of steps before anything is timed or recorded.
        steps: Number of steps to record.
        after_s: When to begin, in seconds after the start of the program. If it is not None,
            `warmup` is not used.
        for_s: How long to record, in seconds. If it is not None, `steps` is not used.
        lines: How source lines are found: one of `LINE_CLOCKS`.
        shapes: Whether to record the shapes of operators' inputs.
        keep_arguments: Whether to store the program's arguments and environment. They may contain
            secrets.
        stop: Whether to end the program after the recording.
        step: The name of the annotation that the program puts around each step, for `explain`; None
            if it puts none.
        user: Glob patterns of the user's files, for `explain`.
    """

    folder: str
    recorder: RecorderName = "auto"
    warmup: int = USUAL_WARMUP
    steps: int = 5
    after_s: float | None = None
    for_s: float | None = None
    lines: LineClockName = "auto"
    shapes: bool = False
    keep_arguments: bool = False
    stop: bool = False
    step: str | None = None
    user: tuple[str, ...] = ()

    @property
    def by_torch(self) -> bool:
        """Whether these settings select the recorder `torch`. This recorder can begin only at a step of the program."""
        return self.recorder == "torch" or (self.recorder == "auto" and self.shapes)

    def metadata(self) -> dict[str, object]:
        """Returns those settings that a trace file stores, by name: all except the folder."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}

    def to_json(self) -> str:
        """Returns the settings as one line of ASCII text, which can be the value of an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Returns the settings that `text` has, which `to_json` returned.

        Raises:
            ValueError: The text has another form.
            TypeError: The text has another form.
        """
        settings = cls(**json.loads(text))
        return replace(settings, user=tuple(settings.user))


def check_choices(recorder: str, lines: str, *, shapes: bool) -> None:
    """Checks choices for a recording before the program starts.

    Args:
        recorder: The name of the recorder, or "auto".
        lines: How source lines are to be found.
        shapes: Whether to record the shapes of operators' inputs.

    Raises:
        UsageError: A choice is unknown, two choices exclude each other, or a choice does not work
            with this version of Python.
    """
    for name, value, known in (("recorder", recorder, RECORDERS), ("lines", lines, LINE_CLOCKS)):
        if value not in known:
            raise UsageError(f"{name}: {value!r} is none of {', '.join(known)}")
    if recorder == "cupti" and shapes:
        raise UsageError("shapes are recorded by the recorder torch alone: leave out shapes, or the recorder cupti")
    if lines == "calls" and (recorder == "torch" or shapes):
        raise UsageError("lines by calls need the recorder cupti: take monitoring, settrace or none")
    if lines == "monitoring" and sys.version_info < (3, 12):
        raise UsageError("lines are followed by monitoring from Python 3.12 on: take settrace, or leave out lines")
