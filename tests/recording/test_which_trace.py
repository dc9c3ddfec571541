"""Which recording becomes the trace: the run's, that of its first steps, or that of what it did before them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from recording.folders import Folder

from unstall.cupti.trial import BEFORE_STEPS, FIRST_STEPS
from unstall.errors import TraceError
from unstall.recording.trace.write import write_trace

pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)

_STATES = ("absent", "unreadable", "idle", "busy")


def _made(folder: Path, state: str) -> Folder:
    """A recording: not begun, without its records, without device ops, or with one kernel of the folder's name."""
    folder.mkdir(parents=True, exist_ok=True)
    recording = Folder(folder)
    recording.armed()
    if state != "absent":
        recording.window(1_000)
    if state == "busy":
        recording.kernel(folder.name, 5_000, 8_000, recording.call("cuLaunchKernel", 3_000, 4_000))
    if state in ("idle", "busy"):
        recording.write()
    return recording


def _written(folder: Path, states: Sequence[str], of: str = "program") -> tuple[list[str], str | None]:
    """The kernels in the trace of recordings of these states, and its shortfall."""
    for name, state in zip(("", FIRST_STEPS, BEFORE_STEPS), states, strict=True):
        _made(folder / "run" / name, state)
    missing = "it was over too soon" if states[0] == "absent" else None
    trace = folder / "trace.json"
    shortfall = write_trace(folder / "run", trace, missing=missing, of=of)
    document = json.loads(trace.read_text())
    assert document["unstall"].get("shortfall") == shortfall
    return [event["name"] for event in document["traceEvents"] if event.get("cat") == "kernel"], shortfall


@pytest.mark.parametrize("states", list(itertools.product(_STATES, repeat=3)), ids="-".join)
def test_the_trace_is_of_the_first_that_has_work_of_the_device_else_of_the_first_that_there_is(
    tmp_path: Path, states: tuple[str, str, str]
) -> None:
    if not {"idle", "busy"} & set(states):
        with pytest.raises(TraceError, match="nothing was recorded: "):
            _written(tmp_path, states)
        return
    expected = states.index("busy" if "busy" in states else "idle")
    kernels, shortfall = _written(tmp_path, states)
    assert kernels == (["run", FIRST_STEPS, BEFORE_STEPS][expected : expected + 1] if "busy" in states else [])
    assert (shortfall is None) == (expected == 0)


@pytest.mark.parametrize(
    ("states", "shortfall"),
    [
        (("idle", "busy", "absent"), "this is how the block began, since nothing ran on the device later, during the "),
        (("absent", "busy", "busy"), "this is how the block began, since it was over too soon"),
        (("absent", "idle", "busy"), "this is how the block began, recorded with cupti, since it was over too soon"),
        (("unreadable", "busy", "absent"), "this is how the block began, since CUPTI had not begun"),
    ],
)
def test_the_shortfall_says_why_it_is_of_how_the_run_began(
    tmp_path: Path, states: tuple[str, str, str], shortfall: str
) -> None:
    assert str(_written(tmp_path, states, of="block")[1]).startswith(shortfall)


def test_a_recording_that_failed_is_not_said_to_be_of_an_idle_device(tmp_path: Path) -> None:
    _made(tmp_path / "run", "idle").journal.write("failed", why="the disk is full")
    _made(tmp_path / "run" / FIRST_STEPS, "busy")
    assert write_trace(tmp_path / "run", tmp_path / "trace.json") == (
        "this is how the program began, since the recording failed: the disk is full"
    )


@pytest.mark.parametrize(("by", "expected"), [("optimizer", 2_000), ("loader", None)])
def test_first_steps_have_the_plain_step_time_that_the_session_got_to(
    tmp_path: Path, by: str, expected: int | None
) -> None:
    run = _made(tmp_path / "run", "absent")
    run.journal.write("phase", phase="plain_before", by=by)
    run.journal.write(
        "plain", which="before", steps=2, host_ns=2_000, device_ns=None, marks_ns=[20_000, 22_000, 24_000]
    )
    run.journal.write("over", why="exit", phase="plain_before", steps=3)
    first = tmp_path / "run" / FIRST_STEPS
    first.mkdir()
    recording = Folder(first)
    recording.armed()
    recording.window(1_000)
    recording.marks(2_000, 5_000, 8_000)
    recording.journal.write("recorded", by="optimizer", steps=2, settling=0)
    recording.kernel("first", 5_000, 8_000, recording.call("cuLaunchKernel", 3_000, 4_000))
    recording.write()
    trace = tmp_path / "trace.json"
    write_trace(tmp_path / "run", trace, missing="it was over too soon", of="program")
    assert json.loads(trace.read_text())["unstall"].get("plain_step_ns") == expected
