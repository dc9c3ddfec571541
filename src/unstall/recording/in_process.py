"""Recording from within a program: `with unstall.record() as recording`."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from unstall.errors import UsageError
from unstall.guest import active

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.recording.block import BlockRecording
    from unstall.recording.session import Session
    from unstall.recording.settings import LineClockName, RecorderName, Settings
    from unstall.recording.window import MakeLineClock, MakeRecorder
    from unstall.timeline.columns import Timeline


_NO_GPU = "there is no GPU here: unstall.virtual_gpu() simulates one"


def record(
    *,
    steps: int | None = None,
    warmup: int = 0,
    recorder: RecorderName = "auto",
    lines: LineClockName = "auto",
    shapes: bool = False,
) -> Recording:
    """Records what a `with` block does. After the block, call `explain()` of the recording.

    Once it has begun, the block never fails because of the recording.

    Only one thread at a time may record. If another recording is active, entering the block raises
    UsageError.

    Args:
        steps: How many steps to record. Before these steps come `warmup` steps, and then steps that
            are only timed, for at least 0.3 s, as in `unstall run`. None records the whole block.
        warmup: Number of steps before anything is timed or recorded. Can be given only with
            `steps`.
        recorder: What records. `cupti` costs least. `torch` works wherever torch.profiler does.
            `auto` takes `cupti` if it works in this process, and `torch` if not.
        lines: How source lines are found: `calls` (only with `cupti`), `monitoring`, `settrace` or
            `none`. `auto` takes the cheapest method that works.
        shapes: Whether to record the shapes of operators' inputs too. Only the recorder `torch` can
            do this.

    Returns:
        The recording, a context manager that can be entered once.

    Raises:
        UsageError: `steps` or `warmup` is not possible, the other choices exclude each other, or there is no room
            for temporary files.
    """
    if steps is not None and steps < 1:
        raise UsageError(f"steps={steps}: record at least one step, or leave it out to record the whole block")
    if warmup < 0 or (warmup and steps is None):
        raise UsageError(f"warmup={warmup}: give a number of steps, together with steps")
    import tempfile

    from unstall.recording.child import Chosen
    from unstall.recording.settings import FOLDER_PREFIX, Settings, check_choices

    check_choices(recorder, lines, shapes=shapes)
    with _needing_room():
        folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
    number = Settings(folder).steps if steps is None else steps
    settings = Settings(folder, recorder, warmup, number, lines=lines, shapes=shapes)
    chosen = Chosen(settings)
    return Recording(settings, chosen.recorder, chosen.line_clock, whole=steps is None)


@contextmanager
def _needing_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"record() cannot write its temporary files: {error.strerror or error}") from error


def _remove(folder: str, process: int) -> None:
    """Removes the files of a recording, unless this is a fork of the process that made them."""
    import shutil

    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


class Recording:
    """A recording of one `with` block. Its files are temporary. `save` writes a permanent trace file."""

    def __init__(
        self, settings: Settings, make_recorder: MakeRecorder, make_line_clock: MakeLineClock, *, whole: bool
    ) -> None:
        self._settings = settings
        self._make = (make_recorder, make_line_clock)
        self._whole = whole
        self._running: Session | BlockRecording | None = None
        self._ended = False
        self._timeline: Timeline | None = None
        self.close = weakref.finalize(self, _remove, settings.folder, os.getpid())
        """Removes the temporary files of this recording. This also happens when the recording is garbage-collected."""

    def __enter__(self) -> Self:
        """Begins to record.

        Raises:
            UsageError: This recording was used before, another recording of this process is active, the process has
                a virtual GPU, or its temporary files cannot be written.
        """
        if self._running is not None or self._ended:
            raise UsageError("a recording is of one block: call unstall.record() again for the next")
        why_not = active.refusal()
        if why_not is not None:
            raise UsageError(why_not)
        from unstall.recording.block import BlockRecording
        from unstall.recording.child import first_steps_for, open_journal
        from unstall.recording.session import Session

        with _needing_room():
            journal = open_journal(self._settings)
        running = (
            BlockRecording(journal, *self._make)
            if self._whole
            else Session(self._settings, journal, *self._make, first_steps=first_steps_for(self._settings))
        )
        try:
            running.begin()
        except UsageError:
            journal.close()
            raise
        self._running = running
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, self._running, self._ended = self._running, None, True
        if running is not None:
            running.end("done" if error is None else "exception")

    def save(self, path: str | Path) -> None:
        """Writes the recording to a trace file, which Perfetto opens too.

        Args:
            path: The file's name, which ends in `.json` or `.json.gz`.

        Raises:
            UsageError: The block has not ended, nothing was recorded, or `path` cannot be written.
        """
        missing = self._missing()
        from unstall.recording.trace.write import write_trace

        write_trace(Path(self._settings.folder), Path(path), missing=missing, of="block")

    def timeline(self) -> Timeline:
        """Returns the recording as a timeline, as `unstall.load` returns it for a trace file. Its
        times are in ns.

        Raises:
            UsageError: The block has not ended, or nothing was recorded.
        """
        if self._timeline is None:
            from unstall.read import load

            trace = Path(self._settings.folder) / "recorded.trace.json.gz"
            self.save(trace)
            timeline = load(trace)
            notes = timeline.meta.notes
            if not len(timeline.device) and _lacks_gpu():
                notes = (*notes, _NO_GPU)
            # The source is not a file.
            self._timeline = timeline.with_meta(path="unstall.record()", notes=notes)
        return self._timeline

    def explain(self) -> Report:
        """Explains where the time of the block went, on which line, and why.

        Returns:
            The report, as `unstall.explain` returns it for a trace file.

        Raises:
            UsageError: The block has not ended, or nothing was recorded.
        """
        from unstall.answers.explain import explain

        return explain(self.timeline())

    def _missing(self) -> str | None:
        """Returns a clause that says why only the first steps of the block were recorded. Returns
        None if the wanted steps were recorded.

        Raises:
            UsageError: The block has not ended, nothing was recorded, or the recording's files are
                gone.
        """
        if not self._ended:
            raise UsageError("the recording has not ended: ask for it after its `with` block")
        if not self.close.alive:
            raise UsageError("the recording was closed, and its files are gone")
        if not Path(self._settings.folder).is_dir():
            raise UsageError("something else has removed the recording's temporary files")
        from unstall.recording.journal import read
        from unstall.recording.plain import LEAST_NS

        events = read(self._settings.folder)
        for event in events:
            if event["event"] == "failed":
                raise UsageError(f"nothing was recorded: {event['why']}")
        if not any(event["event"] == "recorded" for event in events):
            from unstall.recording.first_steps import recorded_beginnings

            if recorded_beginnings(Path(self._settings.folder)):
                return (
                    "it ended before the recording did, which begins after "
                    f"warmup={self._settings.warmup} steps and {LEAST_NS / 1e9:g} s or more of steps that are only "
                    "timed: record the whole block, without steps=, or let it take more steps"
                )
            instead = f"; {_NO_GPU}" if _lacks_gpu() else ""
            raise UsageError(
                "nothing was recorded: the block ended before the recording began, which is after "
                f"warmup={self._settings.warmup} steps and {LEAST_NS / 1e9:g} s or more of steps that are only timed; "
                "record the whole block, without steps=, or let it take more steps and call unstall.step() after each"
                + instead
            )
        return None


def _lacks_gpu() -> bool:
    """Returns whether this process has imported torch, but torch finds no GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and not torch.cuda.is_available()
