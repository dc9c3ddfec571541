"""A run laid out for drawing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec.structs import replace
from report.timelines import Recording, drawn, large, no_waits, training_step
from traces import AUTOGRAD, TraceBuilder

from unstall.report.picture import EventKind, Picture
from unstall.result import IDLE_CAUSES
from unstall.timeline.columns import DeviceKind, HostKind, WaitKind, Waits


def labels(picture: Picture) -> list[str]:
    return [picture.strings[label] for label in picture.tracks.label]


def names(picture: Picture, track: str, depth: int = 0) -> list[str]:
    """The names of one lane's events."""
    lanes = picture.lanes
    for lane in range(len(lanes)):
        if labels(picture)[lanes.track[lane]] == track and lanes.depth[lane] == depth:
            last = lanes.first[lane + 1] if lane + 1 < len(lanes) else len(picture.events)
            return [picture.strings[name] for name in picture.events.name[lanes.first[lane] : last]]
    return []


def row(picture: Picture, name: str) -> int:
    return int(np.flatnonzero(picture.events.name == picture.strings.index(name))[0])


def test_devices_stand_above_the_threads_that_feed_them_and_python_below() -> None:
    picture = drawn(training_step(), idle=[(0, 100_000, 1, 0)])

    assert labels(picture) == ["GPU 0 idle", "GPU 0 stream 7", "python 400", "Python, python 400"]


def test_a_thread_that_the_recorder_named_is_named_by_its_program_and_number() -> None:
    timeline = training_step()
    strings = tuple("thread 400 (pt_main_thread)" if text == "python" else text for text in timeline.strings)
    picture = drawn(replace(timeline, strings=strings))

    assert labels(picture)[-2:] == ["pt_main_thread 400", "Python, pt_main_thread 400"]


def test_calls_are_nested_by_calls_alone_and_frames_by_frames() -> None:
    picture = drawn(training_step())

    assert names(picture, "python 400", 0) == ["aten::linear", "cudaMemcpyAsync", "cudaStreamSynchronize"]
    assert names(picture, "python 400", 1) == ["aten::addmm"]
    assert names(picture, "python 400", 2) == ["cudaLaunchKernel"]
    assert names(picture, "Python, python 400", 0) == ["train.py(90): main"]
    assert names(picture, "Python, python 400", 1) == ["train.py(41): step"]


def test_a_device_op_points_at_its_launch_and_shares_its_line_and_stack() -> None:
    places = ["train.py:90 main", "train.py:41 step", "a", "b", "train.py:44 step", "c", "d"]
    picture = drawn(training_step(), host_places=places)
    events = picture.events
    kernel = row(picture, "gemm_f32")

    assert events.launch[kernel] == row(picture, "cudaLaunchKernel")
    assert picture.strings[events.place[kernel]] == "train.py:44 step"
    assert picture.strings[picture.frames.text[events.stack[kernel]]] == "train.py:41 step"
    outer = picture.frames.parent[events.stack[kernel]]
    assert picture.strings[picture.frames.text[outer]] == "train.py:90 main"


def test_a_copy_says_what_it_moves() -> None:
    picture = drawn(training_step())
    copy = row(picture, "Memcpy HtoD (Pageable -> Device)")

    assert picture.events.kind[copy] == EventKind.DEVICE_COPY
    assert picture.strings[picture.events.detail[copy]] == "host → device, pageable, 1,048,576 bytes"


def test_a_wait_says_what_it_waits_for() -> None:
    made = Recording()
    made.call("cudaStreamSynchronize", 0, 10, kind=HostKind.SYNC)
    made.op("kernel", 0, 5, stream=(0, 13))
    one = np.zeros(1, np.int32)
    waits = Waits(one, np.array([WaitKind.STREAM], np.int8), one, one - 1, one - 1, np.ones(1, np.bool_))
    picture = drawn(made.timeline(waits))
    wait = row(picture, "cudaStreamSynchronize")

    assert picture.strings[picture.events.detail[wait]] == "waits for stream 13 (inferred)"


def test_idle_time_has_its_cause_and_one_device_is_not_drawn_twice() -> None:
    sync = IDLE_CAUSES.index("sync")
    picture = drawn(training_step(), idle=[(0, 100_000, sync, 0), (0, 100_000, sync, -1)])

    assert names(picture, "GPU 0 idle") == ["idle: sync"]
    assert picture.events.kind[row(picture, "idle: sync")] == EventKind.IDLE + sync
    assert "all GPUs idle" not in labels(picture)


def test_of_several_devices_the_idle_time_of_all_together_comes_first() -> None:
    made = Recording()
    made.op("a", 0, 10, stream=(0, 7))
    made.op("b", 0, 10, stream=(1, 7))
    picture = drawn(made.timeline(), idle=[(10, 20, 0, 0), (10, 20, 0, 1), (10, 20, 0, -1)])

    assert labels(picture)[:5] == [
        "all GPUs idle",
        "GPU 0 idle",
        "GPU 0 stream 7",
        "GPU 1 idle",
        "GPU 1 stream 7",
    ]


def test_a_collective_is_told_by_its_kernels_name() -> None:
    made = Recording()
    made.op("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 10)
    made.op("Memcpy of nccl", 20, 30, kind=DeviceKind.COPY)

    assert drawn(made.timeline()).events.kind.tolist() == [EventKind.COLLECTIVE, EventKind.DEVICE_COPY]


def test_threads_that_launch_come_first_and_of_them_the_earliest() -> None:
    made = Recording()
    made.call("loader", 0, 10, thread=0)
    made.call("cudaLaunchKernel", 50, 60, kind=HostKind.LAUNCH, thread=1)
    made.call("cudaLaunchKernel", 20, 30, kind=HostKind.LAUNCH, thread=2)

    assert labels(drawn(made.timeline())) == ["python 402", "python 401", "python 400"]


def test_lanes_are_sorted_slices_that_hold_every_event_once() -> None:
    picture = drawn(large(3_000))
    first = [*picture.lanes.first.tolist(), len(picture.events)]

    assert first[0] == 0
    for begin, end in pairwise(first):
        assert begin < end
        assert (np.diff(picture.events.start[begin:end]) >= 0).all()
        assert (picture.events.start[begin + 1 : end] >= picture.events.end[begin : end - 1]).all()
    assert len(picture.events) == 3_000


def test_of_too_large_a_run_the_deepest_frames_are_left_out_first_and_it_says_so() -> None:
    whole = drawn(training_step())
    without_inner_frame = drawn(training_step(), limit=len(whole.events) - 1)
    without_depths = drawn(training_step(), limit=len(whole.events) - 4)

    assert names(without_inner_frame, "Python, python 400", 1) == []
    assert len(names(without_inner_frame, "Python, python 400", 0)) == 1
    assert without_inner_frame.notes == (
        "1 of the deepest Python frames are not drawn, to keep the page within 8 events; all figures count them.",
    )
    assert names(without_depths, "python 400", 2) == []
    assert len(names(without_depths, "python 400", 0)) == 3
    assert without_depths.events.launch[row(without_depths, "gemm_f32")] == -1


def test_of_too_many_device_ops_the_longest_are_kept() -> None:
    made = Recording()
    for length in (5, 40, 10, 30):
        made.op(f"kernel {length}", 100 * length, 101 * length)
    picture = drawn(made.timeline(), limit=2)

    assert names(picture, "GPU 0 stream 7") == ["kernel 30", "kernel 40"]


def test_long_names_are_cut_and_unused_texts_left_out() -> None:
    made = Recording()
    made.text("never used")
    made.op("k" * 10_000, 0, 10)
    picture = drawn(made.timeline(no_waits()))

    assert max(map(len, picture.strings)) == 400
    assert "never used" not in picture.strings


def test_an_empty_run_is_an_empty_picture() -> None:
    picture = drawn(Recording().timeline())

    assert len(picture.events) == 0
    assert len(picture.lanes) == 0


def test_a_frame_of_autograds_thread_is_there_once_a_step() -> None:
    trace = TraceBuilder()
    with trace.on_thread(AUTOGRAD), trace.frame("train.py", 40, "step"):
        for _ in range(3):
            with trace.backward("MmBackward0", 1, thread=AUTOGRAD), trace.op("aten::mm"):
                trace.launch("gemm", 20)
            trace.work(500)
    timeline = trace.timeline()
    threads = replace(timeline.threads, name=np.full(len(timeline.threads), len(timeline.strings), np.int32))
    timeline = replace(timeline, strings=(*timeline.strings, "pt_autograd_0"), threads=threads)
    launches = timeline.host.start[timeline.host.kind == HostKind.LAUNCH]
    steps = [(int(at) - 50_000, int(at) + 400_000) for at in launches]

    (track,) = (label for label in labels(drawn(timeline)) if label.startswith("Python, "))
    assert len(names(drawn(timeline), track)) == 1
    by_step = drawn(timeline, steps=steps)
    assert names(by_step, track) == ["train.py(40): step"] * 3
    frames = by_step.events.name == by_step.strings.index("train.py(40): step")
    length = by_step.events.end[frames] - by_step.events.start[frames]
    assert 0 < length.max() < 100_000
