"""Finds out what the processes of a program are doing now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from unstall.blaming.child import RING
from unstall.blaming.hangs.answers import Answer, ask
from unstall.blaming.hangs.processes import Found, state_of
from unstall.blaming.hangs.verdict import described
from unstall.blaming.result import Process
from unstall.blaming.ring import Ring, read_ring
from unstall.errors import TraceError


def snapshot(processes: Sequence[Found], quiet_s: Mapping[int, float], stuck: frozenset[int]) -> tuple[Process, ...]:
    """Asks all processes at the same time what they are doing.

    Args:
        processes: The processes to ask.
        quiet_s: Maps a process id to the time in s since the process last made progress. It lacks
            processes for which this time is not known.
        stuck: The ids of the processes that count as hanging.

    Returns:
        What each process is doing. Leaves out child processes that neither have a rank, nor use a
        device, nor run the user's code.
    """
    states = {each.who.pid: state_of(each.who.pid, each.who.started) for each in processes}
    alive = [each for each in processes if states[each.who.pid] not in ("", "T", "t")]
    answers = dict(zip((each.folder for each in alive), ask([each.folder for each in alive]), strict=True))
    told = (
        _process(each, states[each.who.pid], answers.get(each.folder), quiet_s.get(each.who.pid), stuck)
        for each in processes
    )
    mains = {each.who.pid for each in processes if each.main}
    return tuple(each for each in told if each.pid in mains or _is_of_interest(each))


def _is_of_interest(process: Process) -> bool:
    """Returns whether a child process has a rank, work on a device, or a line of user code.

    A helper process of Python, such as multiprocessing's resource tracker, has none of these.
    """
    return process.rank is not None or process.worked or process.at is not None


def _process(found: Found, state: str, answer: Answer | None, quiet_s: float | None, stuck: frozenset[int]) -> Process:
    who = found.who
    word: Literal["waits", "moves", "ended", "stopped", "silent"] = "waits" if who.pid in stuck else "moves"
    word = "ended" if not state else "stopped" if state in "Tt" else "silent" if answer is None else word
    quiet_ns = None if quiet_s is None else round(quiet_s * 1e9)
    process = Process(pid=who.pid, state=word, rank=who.rank, world_size=who.world_size, quiet_ns=quiet_ns)
    ring = ring_in(found.folder)
    return described(process, answer or Answer(), who.main_thread, ring if state else None)


def ring_in(folder: Path) -> Ring | None:
    """Returns the content of a process's ring file: the last calls by which it put work on streams.
    Returns None if the file does not exist or cannot be read.

    `folder` is the folder of the process.
    """
    try:
        return read_ring(folder / RING)
    except (OSError, TraceError):
        return None
