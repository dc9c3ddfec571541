"""Single facts of what is read: times, ids, names, and what a trace says of itself."""

from __future__ import annotations

import gc
import gzip
import json
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unstall.errors import TraceError
from unstall.read.events import Events
from unstall.read.kineto import read
from unstall.timeline.columns import StepsLeftOut


def trace(tmp_path: Path, *events: str, **around: Any) -> Events:
    """Events spelled out, "ph" and "cat" aside, and what stands around them."""
    path = tmp_path / "trace.json"
    listed = ",\n".join(f'{{"ph": "X", "cat": "cpu_op", {event}}}' for event in events)
    path.write_text(f'{{"traceEvents": [{listed}], {json.dumps(around)[1:]}', "utf-8")
    return read(path)


@pytest.mark.parametrize(
    ("start", "duration"),
    [
        ("0", "1"),
        ("4368568133956.621", "52120.456"),
        ("1719384759837462.125", "0.001"),  # a float64 is good to 250 ns here
        ("8796093022207.999", "0.999"),
        ("1719384759837462", "3"),
        ("-12.5", "1e3"),
        ("12.00049999999999999999", "0.0005"),  # to the nearest ns, and halves to the even one
        ("12.0005", "0.00150000000000000000001"),
    ],
)
def test_times_are_exact_to_the_ns(tmp_path: Path, start: str, duration: str) -> None:
    events = trace(tmp_path, '"ts": -100', f'"ts": {start}, "dur": {duration}')
    assert events.meta.zero_ns == -100_000
    assert int(events.start[1]) - 100_000 == round(Decimal(start) * 1000)
    assert int(events.duration[1]) == round(Decimal(duration) * 1000)


def test_the_zero_is_the_first_event_on_the_file_s_clock(tmp_path: Path) -> None:
    events = trace(tmp_path, '"ts": 7.5', '"ts": 5.25', baseTimeNanoseconds=1_790_857_026_000_000_000)
    assert events.start.tolist() == [2250, 0]
    assert events.meta.zero_ns == 1_790_857_026_000_005_250


def test_the_recorder_s_own_spans_are_no_events(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[{"ph":"X","cat":"Trace","ts":1,"dur":9,"pid":"Spans"},{"ph":"X","cat":"kernel","ts":3}]')
    events = read(path)
    assert [events.strings[i] for i in events.category] == ["kernel"]
    assert events.meta.zero_ns == 3000


def test_a_number_and_its_digits_are_one_id(tmp_path: Path) -> None:
    events = trace(tmp_path, '"ts": 1, "tid": 25738', '"ts": 2, "tid": "25738"', '"ts": 3, "tid": -1')
    assert [events.strings[i] for i in events.thread] == ["25738", "25738", "-1"]
    assert events.thread[0] == events.thread[1]


def test_ids_that_no_one_knows_are_minus_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    args = {"stream": 2**32 - 1, "correlation": 2**64 - 1, "device": -5}
    path.write_text(json.dumps([{"ph": "X", "cat": "cuda_sync", "ts": 1, "args": args}]))
    events = read(path)
    assert (events.stream[0], events.correlation[0], events.device[0]) == (-1, -1, -1)


RECORDED = {
    "schema": "unstall.recording/1",
    "recorder": "cupti",
    "lines": "exact",
    "step_marks": "loader",
    "plain_step_ns": 7_000_000,
    "notes": ["GPU 0 was throttled"],
}


def test_what_our_own_recorder_says_is_read(tmp_path: Path) -> None:
    meta = trace(tmp_path, '"ts": 1', unstall=RECORDED).meta
    assert (meta.recorder, meta.exact_lines, meta.step_marks, meta.plain_step_ns) == (
        "cupti",
        True,
        "loader",
        7_000_000,
    )
    assert (meta.notes, meta.sound) == (("GPU 0 was throttled",), True)


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        ({"host_ns": 9.4, "device_ns": 8.6}, {"host_ns": 7.0, "device_ns": 7.4}, (9, 7)),
        ({"host_ns": 9.4, "device_ns": None}, {"host_ns": 7.0, "device_ns": 7.4}, (9, 7)),
        ({"host_ns": 0}, {"host_ns": 7.0}, None),
        ({"host_ns": "9"}, {"host_ns": 7.0}, None),
        ({"host_ns": 9.4, "device_ns": 8.6}, None, None),
    ],
)
def test_plain_steps_before_and_after_are_by_one_clock(tmp_path: Path, before: Any, after: Any, known: Any) -> None:
    plain = {"before": before} | ({} if after is None else {"after": after})
    meta = trace(tmp_path, '"ts": 1', unstall=RECORDED | {"plain": plain}).meta
    assert (meta.plain_steps_ns, meta.plain_step_ns) == (known, 7_000_000)


def test_torchs_own_file_names_no_recorder(tmp_path: Path) -> None:
    meta = trace(tmp_path, '"ts": 1').meta
    assert (meta.recorder, meta.exact_lines, meta.step_marks) == (None, False, None)


@pytest.mark.parametrize("said", [{"recorder": "nsys"}, {"lines": 7}, {"step_marks": ["loader"]}])
def test_a_recorder_that_is_none_of_ours_is_none(tmp_path: Path, said: dict[str, Any]) -> None:
    meta = trace(tmp_path, '"ts": 1', unstall=RECORDED | said).meta
    assert (meta.recorder, meta.exact_lines, meta.step_marks) == (None, False, None)
    assert (meta.plain_step_ns, meta.notes) == (7_000_000, ("GPU 0 was throttled",))


def test_what_the_recording_was_told_of_steps_and_of_the_users_files_is_read(tmp_path: Path) -> None:
    told = {"step": "batch", "user": ["src/*", "train.py"], "recorder": "torch", "steps": 5}
    meta = trace(tmp_path, '"ts": 1', unstall=RECORDED | {"settings": told}).meta
    assert (meta.step, meta.user) == ("batch", ("src/*", "train.py"))


def test_all_that_a_recording_tells_of_steps_left_out_is_read(tmp_path: Path) -> None:
    told = StepsLeftOut(**{name: number for number, name in enumerate(StepsLeftOut.__struct_fields__, 1)})
    meta = trace(tmp_path, '"ts": 1', unstall=RECORDED | {"left_out": msgspec.structs.asdict(told)}).meta
    assert meta.left_out == told


@pytest.mark.parametrize("told", [7, {"step": 7}, {"step": "x" * 401}, {"user": "src"}, {"user": ["src"] * 65}])
def test_what_no_recording_was_told_is_left_out(tmp_path: Path, told: Any) -> None:
    meta = trace(tmp_path, '"ts": 1', unstall=RECORDED | {"settings": told}).meta
    assert (meta.recorder, meta.step, meta.user) == ("cupti", None, ())


@pytest.mark.parametrize("notes", [7, [7], {"a": "b"}])
def test_notes_that_are_no_texts_are_left_out(tmp_path: Path, notes: Any) -> None:
    meta = trace(tmp_path, '"ts": 1', unstall=RECORDED | {"notes": notes}).meta
    assert (meta.recorder, meta.notes) == ("cupti", ())


def test_notes_are_few_and_short(tmp_path: Path) -> None:
    meta = trace(tmp_path, '"ts": 1', unstall={"notes": ["x" * 10_000] * 1_000}).meta
    assert meta.notes == ("x" * 400,) * 16


def test_a_column_that_no_event_has_takes_no_memory(tmp_path: Path) -> None:
    events = trace(tmp_path, '"ts": 1', '"ts": 2')
    assert events.sequence.tolist() == [-1, -1]
    assert events.sequence.strides == (0,)


def test_shapes_are_json_in_its_shortest_form(tmp_path: Path) -> None:
    events = trace(
        tmp_path,
        '"ts": 1, "args": {"Input Dims": [\n [64, 3],\n []\n]}',
        '"ts": 2, "args": {"Input Dims": [[64,3],[]]}',
    )
    assert [events.strings[i] for i in events.shapes] == ["[[64,3],[]]"] * 2
    assert events.shapes[0] == events.shapes[1]


def test_a_kernel_has_its_number_of_blocks(tmp_path: Path) -> None:
    events = trace(
        tmp_path,
        '"ts": 1, "cat": "kernel", "args": {"grid": [4, 2, 3], "block": [128, 1, 1]}',
        '"ts": 2, "cat": "kernel", "args": {"grid": [4,2,3]}',
        '"ts": 3, "cat": "kernel"',
        f'"ts": 4, "cat": "kernel", "args": {{"grid": [4, 2, {" " * 99}3]}}',
        '"ts": 5, "cat": "cpu_op", "args": {"grid": [4, 2, 3]}',
    )

    assert events.blocks.tolist() == [24, 24, -1, -1, -1]


def test_a_kernel_of_the_virtual_gpu_has_its_share_of_the_device(tmp_path: Path) -> None:
    shares = (0, 640, 1000, 1001, -7)
    events = trace(
        tmp_path,
        *(f'"ts": {i}, "cat": "kernel", "args": {{"device share": {share}}}' for i, share in enumerate(shares)),
        '"ts": 9, "cat": "cpu_op", "args": {"device share": 640}',
    )

    assert events.share.tolist() == [0, 640, 1000, -1, -1, -1]


def test_threads_and_processes_have_names(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    names = [
        {"ph": "M", "name": "thread_name", "pid": 4, "tid": 7, "args": {"name": "autograd"}},
        {"ph": "M", "name": "process_name", "pid": 4, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 4, "tid": 0, "args": {"labels": "CPU"}},
    ]
    path.write_text(json.dumps(names))
    assert read(path).thread_names == {("4", "7"): "autograd", ("4", ""): "python"}


def test_what_a_trace_says_of_itself(tmp_path: Path) -> None:
    meta = trace(
        tmp_path,
        '"ts": 1',
        deviceProperties=[{"id": 1, "name": "NVIDIA H200", "numSms": 132}, {"id": 0, "name": "NVIDIA H100"}],
        cuda_runtime_version=12040,
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
        with_stack=1,
        environment={"packages": {"torch_version": "2.6.0+cu124"}},
        unstall={"plain_step_ns": 40_000_000, "more": "to come"},
    ).meta
    assert meta.devices == ("NVIDIA H100", "NVIDIA H200")
    assert meta.multiprocessors == (0, 132)
    assert (meta.cuda, meta.torch) == ("12.4", "2.6.0+cu124")
    assert (meta.rank, meta.world_size) == (3, 8)
    assert meta.has_stacks
    assert meta.plain_step_ns == 40_000_000
    assert meta.reader == "kineto"
    assert meta.sound


@pytest.mark.parametrize("odd", [None, 7, "text", [], {}, [{"id": "x"}], {"rank": "x"}, -1, 2**70])
def test_what_makes_no_sense_there_is_left_out(tmp_path: Path, odd: Any) -> None:
    keys = (
        "deviceProperties",
        "distributedInfo",
        "baseTimeNanoseconds",
        "with_stack",
        "unstall",
        "cuda_runtime_version",
    )
    meta = trace(tmp_path, '"ts": 1', **dict.fromkeys(keys[:2] + keys[3:], odd)).meta
    assert meta.devices == ()
    assert (meta.rank, meta.plain_step_ns, meta.cuda) == (None, None, None)
    assert meta.sound


def test_the_content_decides_not_the_name(tmp_path: Path) -> None:
    text = b'[{"ph":"X","ts":1}]'
    (tmp_path / "packed.json").write_bytes(gzip.compress(text))
    (tmp_path / "plain.json.gz").write_bytes(text)
    assert len(read(tmp_path / "packed.json").name) == len(read(tmp_path / "plain.json.gz").name) == 1


def test_progress_is_told_in_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"[" + b" " * (5 << 20) + b"]")
    told: list[tuple[int, int]] = []
    read(path, lambda done, total: told.append((done, total)))
    assert [total for _, total in told] == [path.stat().st_size] * len(told)
    assert sorted(told) == told
    assert told[-1][0] == path.stat().st_size


def test_zstd_says_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "trace.json.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(9))
    with pytest.raises(TraceError, match=r"takes Python 3\.14 or the package zstandard"):
        read(path)


def test_zstd_is_read_and_its_damage_seen(tmp_path: Path) -> None:
    # One frame with one raw block, by hand: RFC 8878.
    text = b'[{"ph":"X","ts":1}]'
    frame = b"\x28\xb5\x2f\xfd\x20" + bytes([len(text)]) + (len(text) << 3 | 1).to_bytes(3, "little") + text
    path = tmp_path / "trace.json.zst"
    path.write_bytes(frame)
    assert len(read(path).name) == 1
    path.write_bytes(frame[:-1])
    assert not read(path).meta.sound


def test_nothing_of_the_reading_is_left_behind_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"[" + b"0," * (8 << 20))
    before = sys.getswitchinterval(), gc.isenabled(), threading.active_count()
    with pytest.raises(TraceError) as caught:
        read(path)
    assert (sys.getswitchinterval(), gc.isenabled(), threading.active_count()) == before
    assert caught.value.__traceback__ is not None  # which keeps all that was read alive
