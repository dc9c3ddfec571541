"""Reads the folder of a recording, and writes what it contains as a trace file."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unstall import chrome_trace
from unstall.chrome_trace import Text
from unstall.cupti.call_stacks import BACKWARD, LOADING
from unstall.cupti.decode import Activity, read_activity
from unstall.cupti.layouts import Kind
from unstall.errors import TraceError
from unstall.frameworks import PREFETCH_WAIT
from unstall.guest.step_source import step_spans
from unstall.line_digests import UNKNOWN, LineDigests
from unstall.lines.places import LinePlaces, read_places
from unstall.recording import journal
from unstall.recording.clocks import throttled
from unstall.recording.journal import Event
from unstall.recording.plain import Plain
from unstall.recording.trace import events as trace_file
from unstall.recording.trace import slices, torch_profile
from unstall.recording.trace.on_device import DeviceWork, on_device
from unstall.recording.trace.plain_step import PlainStep, plain_step
from unstall.timeline.columns import I32, I64

_SCHEMA = "unstall.recording/1"
_WARMUP = 1  # steps; used for a recording that was cut short
_STEP = "unstall.step#{}"
_BEGINS = ("threading.py", "_bootstrap")  # outermost frame of a thread


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording that was read from its folder. Call `write` at most once, because it consumes `events`."""

    recorder: str
    device_ops: int
    failed: str | None
    """Why the recording is incomplete; None if nothing failed."""
    head: dict[str, Any]  # the trace's fields before its events
    events: Iterator[str]

    def write(self, path: Path, shortfall: str | None = None) -> None:
        """Writes the recording as a trace file.

        Args:
            path: The file. Its name ends in `.json` or `.json.gz`.
            shortfall: A clause that says what is missing from the recording. The trace stores it.
                None if everything was recorded.

        Raises:
            UsageError: `path` cannot be written.
        """
        told = {"shortfall": shortfall} if shortfall else {}
        chrome_trace.write(path, {**self.head, "unstall": {**self.head["unstall"], **told}}, self.events)


def read_recorded(folder: Path, session: Path | None = None) -> Recorded:
    """Reads a recording's folder, even if the recording was cut short.

    Args:
        folder: The folder.
        session: If `folder` has only a recording of the program's first steps: the folder of the
            main recording. If both count the same kind of steps, the steps that the main recording
            timed without recording are used. None if `folder` has the main recording.

    Raises:
        TraceError: Nothing was recorded.
    """
    story = _Story(chrome_trace.readable(journal.read(folder)))
    if session is not None and session != folder:
        story = story.with_plain_steps(chrome_trace.readable(journal.read(session)))
    if story.recorder is None:
        raise TraceError("nothing was recorded: the recording had not begun")
    places = read_places(folder, story.started_in)
    if story.recorder == "torch":
        profile = torch_profile.read_profile(folder)
        head, on_device, events = profile.head, profile.on_device, _torch_events(folder, story, profile, places)
    else:
        activity = read_activity(folder)
        head, on_device = _head(story, activity), _on_device(activity)
        events = _cupti_events(folder, story, activity, places, Text(story.zero_ns))
    digests = _digests(places, LineDigests(story.started_in, story.began_s))
    ours = {**story.metadata(_plain_step(story, on_device)), **digests}
    return Recorded(story.recorder, len(on_device.start), story.failed, {**head, "unstall": ours}, events)


def _digests(places: LinePlaces, digest: LineDigests) -> dict[str, object]:
    """Returns {"digests": {file: {line number: digest}}}, or {} if no source line has a known digest."""
    found: dict[str, dict[int, int]] = {}
    for file, line, _ in {*itertools.chain(*places.stacks.values()), *places.lines.values()}:
        if (value := digest(file, line)) != UNKNOWN:
            found.setdefault(file, {})[line] = value
    return {"digests": chrome_trace.readable(found)} if found else {}


def _torch_events(
    folder: Path, story: _Story, profile: torch_profile.TorchProfile, places: LinePlaces
) -> Iterator[str]:
    text, off_ns = Text(profile.zero_ns), torch_profile.CLOCK_OFF_NS
    clocked = slices.of_clock(folder, places, profile.calls, off_ns) if story.lines else slices.NONE
    yield from profile.events
    yield from _steps(story, text)
    yield from trace_file.slice_events(clocked, story.process, text)


def _cupti_events(folder: Path, story: _Story, activity: Activity, places: LinePlaces, text: Text) -> Iterator[str]:
    calls = activity.calls
    if story.lines == "calls":
        shown = slices.of_calls(calls, _with_backward(activity, places), places, _moments(story, activity))
    elif story.lines is not None:
        shown = slices.of_clock(folder, places, calls)
    else:
        shown = slices.NONE
    yield from chrome_trace.thread_names(_thread_names(calls, places, story.process), story.process, text)
    yield from _steps(story, text)
    yield from _loading(activity, places, story.process, text)
    yield from trace_file.slice_events(shown, story.process, text)
    yield from trace_file.call_events(activity, story.process, text)
    yield from trace_file.device_events(activity, text)
    yield from trace_file.wait_events(activity, text)
    yield from trace_file.overhead_events(activity, text)


def _plain_step(story: _Story, on_device: DeviceWork) -> PlainStep | None:
    """Returns the step time without recording. Returns None if no step was timed without recording.

    `on_device` has the times of the recorded ops.
    """
    measured = [Plain(**_without(event, "event", "at")) for event in story.all("plain")]
    if not measured:
        return None
    # Uses everything that was recorded, not only between the boundaries: the device may lag many steps behind the host.
    steps = len(story.all("mark")) - 1
    recorded_ns = np.array([end - start for start, end in story.steps], np.int64)
    return plain_step(measured, recorded_ns, on_device.own_time_ns / max(steps, 1))


def _on_device(activity: Activity) -> DeviceWork:
    tables = [activity.tables[kind] for kind in (Kind.KERNEL, Kind.MEMCPY, Kind.MEMCPY_PEER, Kind.MEMSET)]

    def column(name: str, *of: np.ndarray) -> I64:
        return np.concatenate([each[name].astype(np.int64) for each in of])

    start, end, correlation = (column(name, *tables) for name in ("start", "end", "correlation"))
    return on_device((start, end, correlation), (column("correlation", activity.calls), column("end", activity.calls)))


def _with_backward(activity: Activity, places: LinePlaces) -> I32:
    """Returns the number of the stack of each call. Calls without a stack, on threads that Python's
    `threading` does not know, such as autograd's, get the stack of the `backward()` that was
    running at the time. Without it, they would look as if unknown code had made them.
    """
    calls, spans = activity.calls, activity.spans
    stack = calls["stack"].astype(np.int32)
    spans = spans[np.isin(spans["what"], [number for number, name in places.spans.items() if name == BACKWARD])]
    spans = spans[np.argsort(spans["start"], kind="stable")]
    python = list(places.threads | _ended(calls, places))
    lost = np.flatnonzero((stack < 0) & ~np.isin(calls["thread"], python))
    lost = lost[np.argsort(calls["start"][lost], kind="stable")]
    # Later spans overwrite earlier ones: calls within a nested backward(), as in checkpoints, belong to that.
    for span in spans:
        first, stop = np.searchsorted(calls["start"][lost], (span["start"], span["end"]))
        within = lost[first:stop]
        stack[within[calls["end"][within] <= span["end"]]] = span["stack"]
    return stack


def _ended(calls: np.ndarray, places: LinePlaces) -> dict[int, str]:
    """Returns a name for each thread that ended before its name was read, by thread id.

    Only threads that `threading` started are returned. They are recognised by the outermost frame
    of their stacks.
    """
    begun = [number for number, frames in places.stacks.items() if frames[-1:] and frames[-1][::2] == _BEGINS]
    threads = np.unique(calls["thread"][np.isin(calls["stack"], begun)]).tolist()
    return dict.fromkeys((each for each in threads if each not in places.threads), "a thread that ended")


def _thread_names(calls: np.ndarray, places: LinePlaces, process: int) -> dict[int, str]:
    """Returns the names of the threads that made calls, by thread id."""
    threads = np.unique(calls["thread"]).tolist()
    known = places.threads | _ended(calls, places)
    return {each: known.get(each, "native") for each in threads} | (
        {process: places.threads.get(process, "MainThread")} if process in threads else {}
    )


def _moments(story: _Story, activity: Activity) -> tuple[I64, I64]:
    """Returns `(threads, times)`, two columns: a time in ns at which a step, or a call of a watched
    function, began or ended, and its thread.
    """
    spans, boundaries = activity.spans, np.unique(np.array(story.steps, np.int64))
    threads = np.concatenate([spans["thread"], spans["thread"], np.full(len(boundaries), story.driver)])
    times = np.concatenate([spans["start"].astype(np.int64), spans["end"].astype(np.int64), boundaries])
    return threads.astype(np.int64), times


def _steps(story: _Story, text: Text) -> Iterator[str]:
    for number, (start, end) in enumerate(story.steps):
        yield text.span("user_annotation", _STEP.format(number), story.process, story.driver, start, end, "")


def _loading(activity: Activity, places: LinePlaces, process: int, text: Text) -> Iterator[str]:
    """Yields an event, as JSON text, for each wait for the next batch of a DataLoader or of `unstall.prefetch`."""
    for name in (LOADING, PREFETCH_WAIT):
        loading = [number for number, each in places.spans.items() if each == name]
        for span in activity.spans[np.isin(activity.spans["what"], loading)].tolist():
            start, end, _, _, thread = span[:5]
            yield text.span("user_annotation", name, process, thread, start, end, "")


def _head(story: _Story, activity: Activity) -> dict[str, object]:
    """Returns the fields that stand before the events in a trace of Kineto's form, by name."""
    cuda = str(story.machine.get("cuda") or "").split(".")
    devices: list[dict[str, object]] = story.machine.get("devices") or []
    head: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": device.get("index", row),
                "name": device.get("name", ""),
                "numSms": device.get("multi_processor_count", 0),
            }
            for row, device in enumerate(devices)
        ],
        "cupti_version": activity.cupti_version,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": story.zero_ns,
        "torch_version": story.machine.get("torch"),
    }
    if len(cuda) >= 2 and cuda[0].isdecimal() and cuda[1].isdecimal():
        head["cuda_runtime_version"] = int(cuda[0]) * 1000 + int(cuda[1]) * 10
    rank, size = (str(story.machine.get(name)) for name in ("rank", "world_size"))  # from the environment, so any text
    if rank.isdecimal():
        head["distributedInfo"] = {"rank": int(rank), "world_size": int(size) if size.isdecimal() else None}
    return head


@dataclass(frozen=True, slots=True)
class _Story:
    """What the journal of a recording (its file of events) tells."""

    events: list[Event]

    def with_plain_steps(self, session: list[Event]) -> _Story:
        """Adds the steps that were timed without recording, from the journal `session` of the main
        recording, if both journals count the same kind of steps.

        Returns a new object if steps are added, and `self` if not.
        """
        timed = _Story(session)
        begun = [event.get("by") for event in timed.all("phase") if event["phase"] == "plain_before"]
        if begun[-1:] != [self._last("recorded").get("by")]:
            return self
        return _Story([*self.events, *timed.all("plain")])

    @property
    def recorder(self) -> str | None:
        return self._last("window").get("recorder")

    @property
    def failed(self) -> str | None:
        """Why the recording is incomplete; None if nothing failed."""
        return next((str(event.get("why")) for event in self.all("failed")), None)

    @property
    def lines(self) -> str | None:
        """How source lines were recorded; None if they were not recorded."""
        return self._last("window").get("lines")

    @property
    def process(self) -> int:
        return int(self._last("armed").get("pid", 0))

    @property
    def driver(self) -> int:
        """The thread that runs the steps: the thread with the most step boundaries."""
        threads = Counter(event["thread"] for event in self.all("mark") if event.get("thread"))
        return int(next((thread for thread, _ in threads.most_common(1)), self.process))

    @property
    def started_in(self) -> str:
        return str(self._last("armed").get("folder") or os.getcwd())  # noqa: PTH109 - as text

    @property
    def began_s(self) -> float:
        """When the program started, as a value of `time.time()`. It is 0 in recordings that older
        versions of unstall made.
        """
        return float(self._last("armed").get("began_s", 0))

    @property
    def machine(self) -> dict[str, Any]:
        facts: dict[str, Any] = self._last("machine").get("facts") or {}
        return facts

    @property
    def zero_ns(self) -> int:
        return int(self._last("window").get("at", 0))

    @property
    def steps(self) -> list[tuple[int, int]]:
        """When each step began and ended, in ns, without warm-up steps."""
        marks, loop_ends = ([event["at"] for event in self.all(name)] for name in ("mark", "loop_end"))
        warmup = self._last("recorded").get("settling", 0 if len(marks) < 3 else _WARMUP)
        return step_spans(marks[warmup:], loop_ends)

    def metadata(self, plain: PlainStep | None) -> dict[str, object]:
        """Returns the value of the field "unstall" of the trace. `plain` is the step time without
        recording, or None.
        """
        by = self._last("recorded").get("by") or next(
            (event.get("kind") for event in self.events if event["event"] == "mark"), None
        )
        clocks = {event["which"]: event["devices"] for event in self.all("clocks")}
        return {
            "schema": _SCHEMA,
            "recorder": self.recorder,
            "lines": "exact" if self.lines else "def" if self._last("window").get("stacks") else "none",
            "lines_by": self.lines,
            "step_marks": by if by in ("optimizer", "loader", "forward", "explicit", "time") else None,
            **(_of_plain(plain) if plain else {}),
            "settings": self._last("settings").get("settings", {}),
            "machine": self.machine,
            "memory": {event["which"]: event["counters"] for event in self.all("memory")},
            "clocks": clocks,
            "facts": {event["of"]: event["facts"] for event in self.all("facts")},
            "notes": [*self._notes(clocks), *(plain.notes if plain else [])],
            **({"arguments": _without(self._last("arguments"), "event", "at")} if self.all("arguments") else {}),
        }

    def _notes(self, clocks: dict[str, list[dict[str, object]]]) -> list[str]:
        notes = []
        if instead := self._last("window").get("instead"):
            notes.append(f"recorded with torch.profiler, since {instead}")
        ours = {device.get("uuid") for device in self.machine.get("devices") or []}
        before, after = (
            [clock for clock in clocks.get(which, []) if not ours or str(clock.get("uuid", "")) in _uuids(ours)]
            for which in ("before", "after")
        )
        notes += throttled(before, after)  # type: ignore[arg-type]
        for event in self.all("facts"):
            notes += _losses(event["facts"])
        if not self._last("recorded"):
            notes.append("the recording was cut short: the program ended within it")
        if self._last("over").get("why") == "profiler":
            notes.append("the recording ended as the program's own torch.profiler began")
        notes += [f"the recording is incomplete: {event['why']}" for event in self.all("failed")]
        return notes

    def all(self, name: str) -> list[Event]:
        return [event for event in self.events if event["event"] == name]

    def _last(self, name: str) -> Event:
        return next((event for event in reversed(self.events) if event["event"] == name), {})


def _of_plain(plain: PlainStep) -> dict[str, object]:
    stretches = {each.which: _without(asdict(each), "which", "marks_ns", "loop_ends_ns") for each in plain.stretches}
    return {"plain_step_ns": round(plain.ns), "plain": stretches}


def _uuids(ours: Iterable[object]) -> set[str]:
    """Returns each UUID of a GPU in two forms: torch's form, and the driver's form with the prefix "GPU-"."""
    return {text for uuid in ours for text in (str(uuid), f"GPU-{uuid}")}


def _losses(facts: dict[str, object]) -> list[str]:
    notes = []
    if facts.get("refused"):
        notes.append("not all was recorded: there was no room for it")
    if facts.get("strange"):
        notes.append(f"records of CUPTI are not as they should be: kind and size {facts['strange']}")
    entries, capacity = facts.get("entries"), facts.get("capacity")
    if isinstance(entries, int) and isinstance(capacity, int) and entries > capacity:
        notes.append(f"of {entries:,} changes of line the first {entries - capacity:,} were dropped")
    if facts.get("ended_by"):
        notes.append(f"lines were not followed to the end: {facts['ended_by']}")
    return notes


def _without(event: Event, *names: str) -> Event:
    return {name: value for name, value in event.items() if name not in names}
