"""Tells the user what happens in a recorded program. The program writes that to its journal, a file of events."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.figures import counted, duration, signal_name
from unstall.guest.device import has_gpu
from unstall.guest.ranks import speaker
from unstall.recording.plain import LEAST_NS, LEAST_STEPS

if TYPE_CHECKING:
    from unstall.launching.launch import Exit
    from unstall.recording.journal import Event, Follower
    from unstall.recording.settings import Settings

_OF_PYTHON = "Python did not load unstall's sitecustomize as it started"
_SEEN = (
    "that unstall sees, which are an optimizer's, and with CUDA a DataLoader's or, from Python 3.12 on, a model's: "
    "call unstall.step() at the end of each step"
)
_TORCH_WAITS = "recorder torch begins only at a step, and "
_UNSEEN = f"the program took no steps {_SEEN}"
_ENDED_EARLY = f"the program ended before any step {_SEEN}"


class Teller:
    """Prints the progress of a recording to stderr, such as when it begins and ends."""

    def __init__(self, follower: Follower, *, quiet: bool, stop: bool = False) -> None:
        """Prepares to print the progress of a recording.

        Args:
            follower: Reads the journal: the file to which the recorded program writes events.
            quiet: Whether to print nothing.
            stop: Whether the program is ended when the recording is complete.
        """
        self._follower = follower
        self._stop = stop
        self._quiet = quiet
        self._window_ns = 0

    def tell(self, *, running: bool = True) -> None:
        """Prints what has happened in the recorded program since the last call. `running` is
        whether the program is still running.
        """
        for event in self._follower.events():
            news = self._news(event, running)
            if news and not self._quiet:
                say(news)

    def _news(self, event: Event, running: bool) -> str | None:
        name, why = event["event"], event.get("why")
        goes_on = "; the program goes on" if running and why != "exit" else ""
        if name == "window":
            self._window_ns = event["at"]
            without = "" if has_gpu() else "; no NVIDIA or AMD GPU is here, so there will be little to explain"
            return f"recording with {event.get('recorder')}{without}" if running else None
        if name == "recorded":
            sequel = _stopping(event) if goes_on and self._stop else goes_on
            return f"recorded {_amount(event, self._window_ns)}{sequel}"
        if name == "waiting" and running:
            return f"not recording yet: {why}"
        if name == "failed" and running:
            return f"recording failed: {why}{goes_on}"
        return None


def try_cupti(settings: Settings) -> None:
    """Tests whether libcupti crashes, before the program to record starts. Without this call, the
    program itself would start a process for the test.

    `settings` are the settings of the recording.
    """
    from unstall.cupti.recorder import try_ahead

    with suppress(OSError):  # the program tries it itself then
        try_ahead(Path(settings.folder))


def failure(events: Sequence[Event]) -> str | None:
    """Returns the reason why a recording failed; None if it did not fail. `events` are the events
    that the recorded program wrote.
    """
    return next((f"{event.get('why')}" for event in events if event["event"] == "failed"), None)


def why_nothing(events: Sequence[Event], settings: Settings, *, succeeded: bool) -> str | None:
    """Returns why a recording did not begin, and what to do about it. Returns None if it began.

    Args:
        events: The events that the program wrote.
        settings: The settings of the recording.
        succeeded: Whether the program ended with exit code 0.
    """
    last = {event["event"]: event for event in events}
    if "window" in last:
        return None
    if "failed" in last or "waiting" in last:
        return f"{(last.get('failed') or last['waiting']).get('why')}"
    if "armed" not in last:
        return _OF_PYTHON
    if "over" not in last:
        return "the program was killed, or left by os._exit or exec, before the recording began"
    return _too_early(last["over"], settings, succeeded)


def lacks_gpu(events: Sequence[Event], *, succeeded: bool) -> bool:
    """Returns whether a program needs a GPU that this machine lacks.

    A program that succeeded needs a GPU if it used torch. A program that failed needs a GPU if it
    failed because CUDA was not available.

    Args:
        events: The events that the program wrote.
        succeeded: Whether the program ended with exit code 0.
    """
    over = next((event for event in events if event["event"] == "over"), {})
    wanted = over.get("torch" if succeeded else "failed_for_cuda", False)
    return wanted and not has_gpu()


def how_it_failed(ended: Exit) -> str | None:
    """Returns a sentence for the report if the program failed or was killed; None if it succeeded.
    `ended` is how the program ended.
    """
    if ended.signal is not None:
        return f"{signal_name(ended.signal)} ended the program; the report is of what ran before"
    return f"the program ended with exit code {ended.code}; the report is of what ran before" if ended.code else None


def say(text: str) -> None:
    """Prints a line to stderr. If the run has several ranks, the line names the rank of this
    process. Does nothing if stderr is closed.
    """
    from unstall.document.plain import no_command, plain

    line = f"{speaker(os.environ)}{plain(text)}"
    with suppress(OSError, ValueError):
        print(no_command(line), file=sys.stderr, flush=True)


def _stopping(recorded: Event) -> str:
    if recorded.get("why") == "profiler" and not recorded.get("steps"):
        return "; the program goes on, as its own torch.profiler began, beside which nothing can be recorded"
    if recorded.get("by") == "time":
        return "; --stop ends the program at a step, and there was none yet: call unstall.step() at the end of each"
    return "; --stop ends the program soon"


def _amount(recorded: Event, window_ns: int) -> str:
    steps = recorded.get("steps", 0)
    if steps:
        return counted(steps, "step")
    return duration(recorded["at"] - window_ns) if recorded.get("by") == "time" else "less than a step"


def _too_early(over: Event, settings: Settings, succeeded: bool) -> str:
    """Returns a sentence that says why the program ended too early to be recorded."""
    steps = over.get("steps", 0)
    if not steps:
        if not over.get("torch", True):
            return f"the program {'did not import torch' if succeeded else 'ended before it had imported torch'}"
        unseen = _UNSEEN if succeeded else _ENDED_EARLY
        if settings.by_torch:
            return f"{_TORCH_WAITS}{unseen}"
        if (settings.after_s is not None or settings.for_s is not None) and not over.get("cuda", True):
            did = "did not initialise CUDA" if succeeded else "ended before it had initialised CUDA"
            return (
                f"the program {did}, without which seconds (--after, --for) are recorded only of one with steps: "
                "call unstall.step() at the end of each step"
            )
        if settings.after_s is not None:
            return f"the program ended {_before_after(settings.after_s)}"
        return unseen
    ended = f"the program ended after {counted(steps, 'step')}"
    if over.get("phase") == "warmup" and settings.after_s is not None:
        return f"{ended}, {_before_after(settings.after_s)}"
    if over.get("phase") == "warmup" and steps <= settings.warmup:
        return f"{ended}, before the {settings.warmup} of --warmup were over: try --warmup 0"
    fewer = (
        " or give fewer --steps" if settings.steps > LEAST_STEPS and steps < settings.warmup + settings.steps else ""
    )
    return (
        f"{ended}, while steps were still timed without recording, which takes {max(LEAST_STEPS, settings.steps)} or "
        f"more of them and {LEAST_NS / 1e9:g} s: let it take more steps{fewer}"
    )


def _before_after(after_s: float) -> str:
    return f"before the {after_s:g} s of --after were over: try --after 0"
