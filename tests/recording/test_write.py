"""A recording's folder, made by hand, through the trace that is written of it, to a timeline."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recording.folders import PROCESS, STARTED_IN, Folder

import unstall
from unstall.cupti.layouts import Kind
from unstall.errors import TraceError, UsageError
from unstall.lines.reference import ENTRY, HEADER, HEADER_BYTES, MAGIC
from unstall.locate.steps import find_steps
from unstall.recording.settings import Settings
from unstall.recording.trace.write import write_trace
from unstall.timeline.columns import CopyDirection, DeviceKind, HostKind, HostMemory, StepsLeftOut, Timeline, WaitKind

pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)

_ZERO = 7_000_000_000_123
_US = 1_000
_TRAIN = f"{STARTED_IN}/train.py"
_LINEAR = "/opt/lib/python3.11/site-packages/torch/nn/modules/linear.py"
_AUTOGRAD = PROCESS + 2


@pytest.fixture
def made(folder: Path) -> Folder:
    """A recording that has begun."""
    recording = Folder(folder)
    recording.armed()
    devices = [{"name": "H200", "multi_processor_count": 132}]
    recording.journal.write("machine", at=1, facts={"torch": "2.13.0", "cuda": "13.0", "devices": devices})
    recording.window(_ZERO)
    return recording


def _over(recording: Folder, *, settling: int = 0) -> None:
    recording.journal.write("recorded", at=_ZERO, by="optimizer", steps=1, settling=settling)
    facts = {"version": 130000, "library": "libcupti.so.13", "records": 3, "dropped": 0, "refused": 0, "strange": None}
    recording.journal.write("facts", at=_ZERO, of="cupti", facts=facts)


def _document(recording: Folder) -> dict[str, Any]:
    path = recording.path / "trace.json.gz"
    write_trace(recording.write(), path)
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def _timeline(recording: Folder) -> Timeline:
    path = recording.path / "trace.json.gz"
    write_trace(recording.write(), path)
    return unstall.load(path)


def _place(timeline: Timeline, row: int) -> tuple[str, int, str] | None:
    """The innermost line that is known for a host row."""
    stack = timeline.host.stack[row]
    if stack < 0:
        return None
    line = timeline.stacks.line[stack]
    lines = timeline.lines
    return timeline.text(lines.file[line]), int(lines.line[line]), timeline.text(lines.function[line])


def _rows(timeline: Timeline, name: str) -> list[int]:
    return [row for row in range(len(timeline.host)) if timeline.text(timeline.host.name[row]) == name]


def test_a_kernel_has_its_name_stream_times_and_the_line_that_launched_it(made: Folder) -> None:
    stack = made.stack((_LINEAR, 125, "forward"), (_TRAIN, 12, "step"), (_TRAIN, 40, "<module>"))
    first = made.call("cuLaunchKernel", _ZERO + 10 * _US + 1, _ZERO + 14 * _US + 2, stack=stack)
    made.kernel("gemm<float>", _ZERO + 20 * _US + 7, _ZERO + 90 * _US + 9, first, stream=20, grid=(4, 2, 1))
    _over(made)
    timeline = _timeline(made)
    device, host = timeline.device, timeline.host
    assert [timeline.text(name) for name in device.name] == ["gemm<float>"]
    assert (DeviceKind(device.kind[0]), int(timeline.streams.stream[device.stream[0]])) == (DeviceKind.KERNEL, 20)
    zero = timeline.meta.zero_ns
    assert (device.start[0] + zero, device.end[0] + zero) == (_ZERO + 20 * _US + 7, _ZERO + 90 * _US + 9)
    launch = int(device.launch[0])
    assert timeline.text(host.name[launch]) == "cuLaunchKernel"
    assert (host.start[launch] + zero, host.end[launch] + zero) == (_ZERO + 10 * _US + 1, _ZERO + 14 * _US + 2)
    assert _place(timeline, launch) == ("torch/nn/modules/linear.py", 125, "forward")
    parents, row = [], int(host.parent[launch])
    while row >= 0:
        parents.append(_place(timeline, row))
        row = int(host.parent[row])
    assert parents[1:] == [("train.py", 12, "step"), ("train.py", 40, "<module>")]
    assert (device.blocks.tolist(), timeline.meta.multiprocessors) == ([8], (132,))


def test_the_users_lines_have_digests_by_which_a_comparison_knows_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nwith lock:\n    y = net(x)\n")
    digests = []
    for number, began_s in enumerate((time.time() + 60, time.time() - 60)):
        made = Folder(folder / str(number))
        made.path.mkdir()
        made.armed(str(tmp_path), began_s=began_s)
        made.window(_ZERO)
        stack = made.stack((_LINEAR, 125, "forward"), (f"{tmp_path}/train.py", 3, "<module>"))
        made.kernel("gemm", _ZERO + 20 * _US, _ZERO + 90 * _US, made.call("cuLaunchKernel", _ZERO, _ZERO, stack=stack))
        _over(made)
        digests.append(_document(made)["unstall"].get("digests"))
    expected = int.from_bytes(hashlib.blake2b(b"y = net(x)", digest_size=6).digest())
    assert digests == [{"train.py": {"3": expected}}, None]  # the second was changed after the program had begun


def test_copies_and_memsets_have_their_bytes_direction_and_memory(made: Folder) -> None:
    times = {"start": _ZERO + 20 * _US, "end": _ZERO + 30 * _US, "stream": 7, "context": 1}
    to_device = made.call("cuMemcpyHtoDAsync_v2", _ZERO + 1 * _US, _ZERO + 2 * _US)
    peer = made.call("cuMemcpyPeerAsync", _ZERO + 3 * _US, _ZERO + 4 * _US)
    memset = made.call("cuMemsetD8Async", _ZERO + 5 * _US, _ZERO + 6 * _US)
    made.record(Kind.MEMCPY, **times, correlation=to_device, bytes=4096, direction=1, source=1, target=3)
    made.record(Kind.MEMCPY_PEER, **times, correlation=peer, bytes=1 << 40, direction=10, source=3, target=3)
    made.record(Kind.MEMSET, **times, correlation=memset, bytes=512)
    _over(made)
    timeline = _timeline(made)
    device = timeline.device
    rows = {timeline.text(timeline.host.name[device.launch[row]]): row for row in range(len(device))}
    seen = {
        call: (device.kind[row], device.bytes[row], device.direction[row], device.host_memory[row])
        for call, row in rows.items()
    }
    assert seen == {
        "cuMemcpyHtoDAsync_v2": (
            *(DeviceKind.COPY, 4096),
            *(CopyDirection.HOST_TO_DEVICE, HostMemory.PAGEABLE),
        ),
        "cuMemcpyPeerAsync": (DeviceKind.COPY, 1 << 40, CopyDirection.PEER_TO_PEER, HostMemory.UNKNOWN),
        "cuMemsetD8Async": (DeviceKind.MEMSET, 512, CopyDirection.NONE, HostMemory.UNKNOWN),
    }


def test_a_step_ends_with_its_loop(made: Folder) -> None:
    starts = [_ZERO + at * 100 * _US for at in range(8)]
    for at in starts:
        launch = made.call("cuLaunchKernel", at + 5 * _US, at + 6 * _US)
        made.kernel("relu", at + 7 * _US, at + 9 * _US, launch)
    made.marks(*starts, kind="loader")
    made.journal.write("loop_end", at=starts[3] + 30 * _US)
    _over(made, settling=1)
    steps = find_steps(_timeline(made))
    assert (len(steps), steps.left_out) == (3, StepsLeftOut(loops=3, of=6, mean_ns=76_667))


def test_steps_are_told_apart_by_marks_without_the_one_that_settles(made: Folder) -> None:
    for at in (5, 105, 205, 305):
        launch = made.call("cuLaunchKernel", _ZERO + at * _US, _ZERO + (at + 1) * _US)
        made.kernel("relu", _ZERO + (at + 2) * _US, _ZERO + (at + 9) * _US, launch)
    made.marks(_ZERO, _ZERO + 100 * _US, _ZERO + 200 * _US + 1, _ZERO + 300 * _US)
    _over(made, settling=1)
    for which, us in (("before", 80), ("after", 101)):
        of_it = {"host_ns": us * _US + 1, "device_ns": us * _US, "marks_ns": [n * us * _US for n in range(6)]}
        made.journal.write("plain", at=9, which=which, steps=5, **of_it)
    timeline = _timeline(made)
    steps = find_steps(timeline)
    zero = timeline.meta.zero_ns
    assert (steps.start + zero).tolist() == [_ZERO + 100 * _US, _ZERO + 200 * _US + 1]
    assert (steps.end + zero).tolist() == [_ZERO + 200 * _US + 1, _ZERO + 300 * _US]
    meta = timeline.meta
    assert (meta.recorder, meta.step_marks, meta.exact_lines, meta.plain_step_ns) == (
        "cupti",
        "optimizer",
        True,
        90_500,
    )
    assert (meta.torch, meta.cuda, meta.devices, meta.sound) == ("2.13.0", "13.0", ("H200",), True)
    assert meta.notes == ("steps before the recording and after it, timed without it, differ by more than 10 %",)


def test_pauses_between_plain_steps_are_no_part_of_what_a_step_takes(made: Folder) -> None:
    """Of 40 steps of 100 µs two are longer by 20 ms. The device is busy for 7 µs a step."""
    for at in range(0, 400, 100):
        launch = made.call("cuLaunchKernel", _ZERO + at * _US, _ZERO + (at + 1) * _US)
        made.kernel("relu", _ZERO + (at + 2) * _US, _ZERO + (at + 9) * _US, launch)
    made.marks(*(_ZERO + at * _US for at in range(0, 400, 100)))
    _over(made, settling=1)
    marks = np.cumsum([100 * _US + 20_000 * _US * (number in (10, 30)) for number in range(41)])
    step_ns = int(marks[-1] - marks[0]) / 40
    of_it = {"host_ns": step_ns, "device_ns": step_ns, "marks_ns": marks.tolist()}
    made.journal.write("plain", at=9, which="before", steps=40, **of_it)
    told = _document(made)["unstall"]
    assert told["plain_step_ns"] == 100 * _US
    assert told["plain"] == {"before": {"steps": 40, "host_ns": 100 * _US, "device_ns": 100 * _US}}
    assert told["notes"][0].startswith("2 of 40 steps timed without the recording had a pause of 20.0 ms")


def test_waits_for_all_that_is_queued_are_no_pauses_though_the_device_is_behind_by_more_than_was_recorded(
    made: Folder,
) -> None:
    """The host asks for a step in 100 µs, for which the device takes 1 ms, by kernels 5 µs apart, and begins with these
    steps after 10 ms of others. Every 50th step the host waits for all."""
    done = _ZERO + 10_000 * _US
    for at in range(0, 400, 100):
        for kernel in range(100):
            launch = made.call("cuLaunchKernel", _ZERO + (at + 1) * _US + kernel, _ZERO + (at + 1) * _US + kernel + 1)
            made.kernel("relu", done, done + 5 * _US, launch)
            done += 10 * _US
    made.marks(*(_ZERO + at * _US for at in range(0, 500, 100)))
    _over(made, settling=1)
    marks = np.cumsum([0, *(100 * _US + 45_000 * _US * (number % 50 == 25) for number in range(200))])
    of_it = {"host_ns": int(marks[-1]) / 200, "device_ns": 1_000 * _US, "marks_ns": marks.tolist()}
    made.journal.write("plain", at=9, which="before", steps=200, **of_it)
    told = _document(made)["unstall"]
    assert told["plain_step_ns"] == 1_000 * _US
    assert not any("pause" in note for note in told["notes"])


def test_steps_are_on_the_thread_that_made_most_of_their_marks(made: Folder) -> None:
    trainer = PROCESS + 5
    made.call("cuLaunchKernel", _ZERO + 5, _ZERO + 15)
    for at, thread in ((0, PROCESS), (100, trainer), (200, trainer), (300, trainer)):
        made.marks(_ZERO + at, thread=thread)
    _over(made)
    steps = [event for event in _document(made)["traceEvents"] if event["name"].startswith("unstall.step#")]
    assert [(event["pid"], event["tid"]) for event in steps] == [(PROCESS, trainer)] * 3


def test_a_wait_is_for_the_last_record_before_it_of_an_event_that_is_used_again(made: Folder) -> None:
    for stream in (7, 20):
        launch = made.call("cuLaunchKernel", _ZERO + stream, _ZERO + stream + 1)
        made.kernel("k", _ZERO + stream * _US, _ZERO + (stream + 1) * _US, launch, stream=stream)
    event = 0x7F00_DEAD_BEEF
    made.call("cuEventRecord", _ZERO + 100, _ZERO + 110, event=event, stream=7)
    made.call("cuStreamWaitEvent", _ZERO + 120, _ZERO + 130, event=event, stream=20)
    second = made.call("cuEventRecord", _ZERO + 140, _ZERO + 150, event=event, stream=20)
    made.call("cuStreamWaitEvent", _ZERO + 160, _ZERO + 170, event=event, stream=7)
    made.call("cuEventSynchronize", _ZERO + 180, _ZERO + 190, event=event)
    made.call("cuEventRecord", _ZERO + 200, _ZERO + 210, event=event, stream=7)
    made.call("cuStreamSynchronize", _ZERO + 220, _ZERO + 230, stream=20)
    made.call("cuEventSynchronize", _ZERO + 240, _ZERO + 250, event=0x99)
    _over(made)
    timeline = _timeline(made)
    waits, host = timeline.waits, timeline.host
    zero = timeline.meta.zero_ns

    def number(row: int) -> int:
        return int(timeline.streams.stream[row]) if row >= 0 else -1

    told = {
        int(host.start[waits.host[row]] + zero - _ZERO): (
            WaitKind(waits.kind[row]),
            int(host.start[waits.record[row]] + zero - _ZERO) if waits.record[row] >= 0 else None,
            number(waits.on_stream[row]),
            number(waits.stream[row]),
        )
        for row in range(len(waits))
        if not waits.inferred[row]
    }
    assert told[120] == (WaitKind.STREAM_EVENT, 100, 7, 20)
    assert told[160] == (WaitKind.STREAM_EVENT, 140, 20, 7)
    assert told[180][:3] == (WaitKind.EVENT, 140, 20)
    assert told[220] == (WaitKind.STREAM, None, -1, 20)
    syncs = [each for each in _document(made)["traceEvents"] if each.get("cat") == "cuda_sync"]
    by_start = {round(each["ts"] * 1000): each["args"] for each in syncs}
    assert by_start[180]["wait_on_cuda_event_record_corr_id"] == second
    assert by_start[180]["wait_on_cuda_event_id"] == event
    assert by_start[240]["wait_on_cuda_event_record_corr_id"] == -1


def test_calls_of_autograds_threads_are_of_the_line_of_the_backward_under_way(made: Folder) -> None:
    outer, inner, forward = (made.stack((_TRAIN, line, "step")) for line in (20, 31, 12))
    made.places += [{"span": 0, "name": "backward"}, {"span": 1, "name": "enumerate(DataLoader)#__next__"}]
    made.places += [{"python_thread": PROCESS, "name": "MainThread"}, {"python_thread": PROCESS + 1, "name": "saver"}]
    made.span(0, _ZERO + 100, _ZERO + 500, stack=outer)
    made.span(0, _ZERO + 200, _ZERO + 300, stack=inner, thread=_AUTOGRAD)  # a checkpoint's, within the other
    expected: dict[int, Any] = {
        50: None,
        120: ("train.py", 20, "step"),
        220: ("train.py", 31, "step"),
        320: ("train.py", 20, "step"),
        495: None,  # it ends after backward() does
    }
    for start in expected:
        made.call("cuLaunchKernel", _ZERO + start, _ZERO + start + 10, thread=_AUTOGRAD)
    # Autograd's threads have a state in Python, but no frame: -2, and not -1 as what Python knows nothing of.
    made.call("cuLaunchKernel", _ZERO + 140, _ZERO + 150, thread=_AUTOGRAD, stack=-2)
    made.call("cuLaunchKernel", _ZERO + 130, _ZERO + 140, thread=PROCESS + 1, stack=-2)
    made.call("cuLaunchKernel", _ZERO + 10, _ZERO + 20, stack=forward)
    _over(made)
    timeline = _timeline(made)
    zero = timeline.meta.zero_ns
    places = {
        int(timeline.host.start[row] + zero - _ZERO): _place(timeline, row) for row in _rows(timeline, "cuLaunchKernel")
    }
    expected[140] = ("train.py", 20, "step")
    assert places == {**expected, 130: None, 10: ("train.py", 12, "step")}
    of = zip(timeline.threads.thread, timeline.threads.name, strict=True)
    names = {timeline.text(thread): timeline.text(name) for thread, name in of}
    assert (names[str(PROCESS)], names[str(PROCESS + 1)], names[str(_AUTOGRAD)]) == ("MainThread", "saver", "native")


def test_a_thread_that_ended_unnamed_is_pythons_by_its_stacks_and_no_part_of_backward(made: Folder) -> None:
    backward = made.stack((_TRAIN, 20, "step"))
    begun = [
        ("/opt/lib/python3.11/threading.py", line, name)
        for line, name in ((1045, "_bootstrap_inner"), (1002, "_bootstrap"))
    ]
    saving = made.stack((_TRAIN, 50, "save"), *begun)
    hook = made.stack((_TRAIN, 60, "hook"))
    made.places += [{"span": 0, "name": "backward"}, {"python_thread": PROCESS, "name": "MainThread"}]
    made.span(0, _ZERO + 100, _ZERO + 500, stack=backward)
    ended = PROCESS + 7
    made.call("cuLaunchKernel", _ZERO + 110, _ZERO + 120, thread=ended, stack=saving)
    made.call("cuLaunchKernel", _ZERO + 130, _ZERO + 140, thread=ended, stack=-2)
    made.call("cuLaunchKernel", _ZERO + 210, _ZERO + 220, thread=_AUTOGRAD, stack=hook)
    made.call("cuLaunchKernel", _ZERO + 230, _ZERO + 240, thread=_AUTOGRAD, stack=-2)
    _over(made)
    timeline = _timeline(made)
    zero = timeline.meta.zero_ns
    places = {
        int(timeline.host.start[row] + zero - _ZERO): _place(timeline, row) for row in _rows(timeline, "cuLaunchKernel")
    }
    assert places == {
        110: ("train.py", 50, "save"),
        130: None,
        210: ("train.py", 60, "hook"),
        230: ("train.py", 20, "step"),
    }
    of = zip(timeline.threads.thread, timeline.threads.name, strict=True)
    names = {timeline.text(thread): timeline.text(name) for thread, name in of}
    assert (names[str(ended)], names[str(_AUTOGRAD)]) == ("a thread that ended", "native")


def test_waits_for_a_batch_are_input_loading_and_no_line_of_backward(made: Folder) -> None:
    stack = made.stack((_TRAIN, 8, "main"))
    made.places += [{"span": 0, "name": "backward"}, {"span": 1, "name": "enumerate(DataLoader)#__next__"}]
    made.span(1, _ZERO + 100, _ZERO + 900, stack=stack)
    made.call("cuLaunchKernel", _ZERO + 200, _ZERO + 210, thread=_AUTOGRAD)
    _over(made)
    timeline = _timeline(made)
    (loading,) = _rows(timeline, "enumerate(DataLoader)#__next__")
    host = timeline.host
    assert (HostKind(host.kind[loading]), int(host.end[loading] - host.start[loading])) == (HostKind.ANNOTATION, 800)
    assert [_place(timeline, row) for row in _rows(timeline, "cuLaunchKernel")] == [None]


def test_frames_entered_since_the_call_before_are_around_no_wait_for_a_batch_and_no_border(made: Folder) -> None:
    main = (_TRAIN, 21, "main")
    first, second = made.stack((_TRAIN, 30, "save"), main), made.stack((_TRAIN, 5, "forward"), main)
    made.places += [{"span": 1, "name": "enumerate(DataLoader)#__next__"}]
    made.call("cuLaunchKernel", _ZERO, _ZERO + 10 * _US, stack=first)
    made.marks(*(_ZERO + border * _US for border in (40, 300)), thread=PROCESS)
    made.span(1, _ZERO + 50 * _US, _ZERO + 150 * _US, stack=first)
    made.call("cuLaunchKernel", _ZERO + 160 * _US, _ZERO + 170 * _US, stack=second)
    made.call("cuLaunchKernel", _ZERO + 310 * _US, _ZERO + 320 * _US, stack=first)
    _over(made)
    timeline = _timeline(made)
    host = timeline.host
    begun = {
        (name, int(host.start[row]) // _US)
        for name in ("forward", "save")
        for row in np.flatnonzero(host.kind == HostKind.PYTHON).tolist()
        if name in timeline.text(int(host.name[row]))
    }
    zero = int(host.start.min()) // _US
    assert {(name, at - zero) for name, at in begun} == {("save", 0), ("forward", 150), ("save", 300)}


@pytest.mark.parametrize(
    "name",
    [b"gemm<\"a\\b\", 'c'>", b"two\nlines\ttab\x00\x1f", b"\xff\xfe<\xc3\x28>", "ядро<κ>".encode(), b"k" * (1 << 16)],
    ids=["quotes", "control", "invalid", "unicode", "64KiB"],
)
def test_a_hostile_kernel_name_is_a_name(name: bytes, made: Folder) -> None:
    launch = made.call("cuLaunchKernel", _ZERO + 1, _ZERO + 2)
    made.kernel(name, _ZERO + 5, _ZERO + 9, launch)
    _over(made)
    timeline = _timeline(made)
    assert timeline.text(timeline.device.name[0]) == name.decode(errors="replace")
    assert (timeline.meta.notes, timeline.meta.sound) == ((), True)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f'{STARTED_IN}/my "best" (2): net\\.py', 'my "best" (2): net\\.py'),
        (f"{STARTED_IN}/line\nbreak.py", "line\nbreak.py"),
        (f"{STARTED_IN}/\udcff.py", "?.py"),
        (f"{STARTED_IN}/" + "deep/" * 400 + "net.py", "deep/" * 400 + "net.py"),
    ],
    ids=["quotes", "newline", "invalid", "long"],
)
def test_a_hostile_path_is_a_path(path: str, shown: str, made: Folder) -> None:
    stack = made.stack((path, 3, "f\udc80"))
    made.call("cuLaunchKernel", _ZERO + 1, _ZERO + 2, stack=stack)
    _over(made)
    timeline = _timeline(made)
    (launch,) = _rows(timeline, "cuLaunchKernel")
    assert _place(timeline, launch) == (shown, 3, "f?")
    assert timeline.meta.notes == ()


def test_a_kernel_whose_name_was_not_written_says_so(made: Folder) -> None:
    launch = made.call("cuLaunchKernel", _ZERO + 1, _ZERO + 2)
    made.kernel("lost", _ZERO + 5, _ZERO + 9, launch)
    made.names.clear()
    _over(made)
    timeline = _timeline(made)
    assert timeline.text(timeline.device.name[0]) == "a kernel whose name was not written"


def test_a_killed_recording_is_written_and_noted(made: Folder) -> None:
    launch = made.call("cuLaunchKernel", _ZERO + 1, _ZERO + 2)
    made.kernel("relu", _ZERO + 5, _ZERO + 9, launch)
    made.marks(_ZERO, _ZERO + 100, _ZERO + 200, _ZERO + 300)
    timeline = _timeline(made)
    assert len(timeline.device) == 1
    assert timeline.meta.notes == ("the recording was cut short: the program ended within it",)
    steps = find_steps(timeline)
    assert (steps.start + timeline.meta.zero_ns - _ZERO).tolist() == [100, 200]
    assert timeline.meta.step_marks == "optimizer"


def test_what_was_lost_is_noted(made: Folder) -> None:
    made.journal.write("recorded", at=1, by="optimizer", steps=1, settling=0)
    made.journal.write("facts", at=1, of="cupti", facts={"refused": 3, "strange": [10, 224]})
    made.journal.write("facts", at=1, of="settrace", facts={"entries": 4_200_000, "capacity": 4_194_304})
    made.journal.write("failed", at=1, why="the disk is full")
    assert _document(made)["unstall"]["notes"] == [
        "not all was recorded: there was no room for it",
        "records of CUPTI are not as they should be: kind and size [10, 224]",
        "of 4,200,000 changes of line the first 5,696 were dropped",
        "the recording is incomplete: the disk is full",
    ]


def test_arguments_are_in_the_trace_only_where_they_were_asked_for(made: Folder) -> None:
    _over(made)
    first = _document(made)
    assert "arguments" not in first["unstall"]
    assert STARTED_IN not in json.dumps(first)
    made.journal.write("arguments", at=2, argv=["python", "train.py", "--key=\udcff"], environment={"TOKEN": "secret"})
    told = _document(made)["unstall"]["arguments"]
    assert told == {"argv": ["python", "train.py", "--key=?"], "environment": {"TOKEN": "secret"}}


def test_what_a_run_was_told_of_steps_and_of_the_users_files_stays_in_its_trace(folder: Path) -> None:
    recording = Folder(folder)
    recording.armed()
    settings = Settings.from_json(Settings(str(folder), step="batch", user=("src/*",)).to_json())
    recording.journal.write("settings", settings=settings.metadata())
    recording.window(_ZERO)
    recording.kernel("gemm", _ZERO + 1, _ZERO + 2, 0)
    _over(recording)
    meta = _timeline(recording).meta
    assert (meta.step, meta.user) == ("batch", ("src/*",))


def test_ranks_and_the_recorder_are_told(folder: Path) -> None:
    recording = Folder(folder, lines=None)
    recording.armed()
    recording.journal.write("machine", at=1, facts={"rank": "3", "world_size": "8"})
    recording.window(_ZERO)
    recording.call("cuLaunchKernel", _ZERO + 1, _ZERO + 2, stack=recording.stack((_TRAIN, 3, "f")))
    _over(recording)
    timeline = _timeline(recording)
    meta = timeline.meta
    assert (meta.rank, meta.world_size, meta.recorder, meta.exact_lines) == (3, 8, "cupti", False)
    assert [_place(timeline, row) for row in _rows(timeline, "cuLaunchKernel")] == [None]


def test_a_rank_that_is_no_number_is_none(folder: Path) -> None:
    recording = Folder(folder, lines=None)
    recording.armed()
    recording.journal.write("machine", at=1, facts={"rank": "worker-0", "world_size": "all"})
    recording.window(_ZERO)
    _over(recording)
    assert "distributedInfo" not in _document(recording)


def test_lines_of_a_clock_are_those_of_the_calls_made_meanwhile(folder: Path) -> None:
    recording = Folder(folder, lines="settrace")
    recording.armed()
    recording.window(_ZERO)
    recording.places += [{"thread": 0, "id": PROCESS, "name": "MainThread"}]
    recording.places += [{"place": n, "file": _TRAIN, "line": 10 + n, "function": "step"} for n in range(3)]
    entries = [(_ZERO, 0, 0, 1), (_ZERO + 100, 1, 0, 1), (_ZERO + 200, 2, 0, 1)]
    head = HEADER.pack(MAGIC, 16, len(entries)).ljust(HEADER_BYTES, b"\0")
    data = b"".join(ENTRY.pack(*entry) for entry in entries).ljust(16 * ENTRY.size, b"\0")
    (folder / "lines.bin").write_bytes(head + data)
    for start in (20, 120, 220):
        recording.call("cuLaunchKernel", _ZERO + start, _ZERO + start + 50)
    _over(recording)
    timeline = _timeline(recording)
    assert [_place(timeline, row) for row in _rows(timeline, "cuLaunchKernel")] == [
        ("train.py", line, "step") for line in (10, 11, 12)
    ]
    assert timeline.meta.exact_lines


def test_a_folder_in_which_nothing_had_begun_is_refused(folder: Path) -> None:
    recording = Folder(folder)
    for _ in range(2):
        with pytest.raises(TraceError, match="nothing was recorded: the recording had not begun"):
            write_trace(folder, folder / "trace.json")
        recording.armed()
    assert not (folder / "trace.json").exists()


def test_a_path_that_cannot_be_written_is_the_users_to_change(made: Folder) -> None:
    _over(made)
    with pytest.raises(UsageError, match="nowhere"):
        write_trace(made.write(), made.path / "nowhere" / "trace.json")
