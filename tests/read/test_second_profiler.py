"""The second profiler of torch 2.15: what it writes in its own shape means what Kineto's means."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from read.second_profiler import Event, opaque, rewritten
from recordings import EXAMPLES
from traces import AUTOGRAD, MAIN, TraceBuilder

from unstall.diagnose.explain import explain
from unstall.read.assemble import assemble
from unstall.read.kineto import events_of
from unstall.result import Result
from unstall.timeline.columns import CopyDirection, DeviceKind, HostKind, HostMemory, Timeline

EXPECTED: dict[str, Any] = json.loads((EXAMPLES / "expected.json").read_text())
RECORDINGS = sorted(path.name.removesuffix(".json.gz") for path in EXAMPLES.glob("*.json.gz"))
QUICK = {
    *("compiled", "ddp_overlapped", "decode_graph", "downloads", "model_parallel", "offload_in_order"),
    *("train_three_waits", "two_streams", "uploads", "wait_behind"),
}
GRAPHS = ["decode_graph", "course_slow_graph"]


def document_of(trace: TraceBuilder) -> Event:
    made: Event = json.loads(msgspec.json.encode(trace.document()))
    return made


def timeline_of(document: Event) -> Timeline:
    return assemble(events_of(iter([json.dumps(document).encode()]), Path("second.json")))


def names(timeline: Timeline) -> list[str]:
    return [timeline.text(index) for index in timeline.device.name.tolist()]


def test_copies_and_memsets_are_what_kineto_calls_them() -> None:
    trace = TraceBuilder()
    with trace.op("aten::copy_"):
        trace.copy("HtoD", 5, memory="Pageable", size=12_000)
        trace.copy("DtoH", 5, size=34_000)
        trace.copy("DtoD", 5, size=56_000)
        trace.memset()
    kineto, second = trace.timeline(), timeline_of(rewritten(document_of(trace)))
    assert names(second) == names(kineto)
    device = second.device
    assert device.kind.tolist() == [DeviceKind.COPY] * 3 + [DeviceKind.MEMSET]
    assert device.direction.tolist() == [
        *(CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST),
        *(CopyDirection.DEVICE_TO_DEVICE, CopyDirection.NONE),
    ]
    assert device.host_memory.tolist() == [HostMemory.PAGEABLE, HostMemory.PINNED, HostMemory.UNKNOWN, 0]
    assert device.bytes.tolist() == [12_000, 34_000, 56_000, 4]
    assert second.meta.notes == ()


def test_a_copy_between_devices_has_its_direction() -> None:
    trace = TraceBuilder()
    trace.copy("DtoD", 5)
    document = rewritten(document_of(trace))
    for event in document["traceEvents"]:
        if event.get("cat") == "gpu_memcpy":
            event["args"]["copy kind"] = "PtoP"
    assert timeline_of(document).device.direction.tolist() == [CopyDirection.PEER_TO_PEER]


def test_calls_are_the_operators_around_them() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 3, "step"), trace.op("aten::mm"):
        trace.launch("gemm")
    timeline = timeline_of(rewritten(document_of(trace)))
    host, (launch,) = timeline.host, timeline.device.launch.tolist()
    assert timeline.text(host.name[host.op[launch]]) == "aten::mm"


def backward_of(trace: TraceBuilder, threads: list[int]) -> None:
    """Two steps: a pass forward, and one backward on these threads at once."""
    for _ in range(2):
        with trace.op("aten::mm"):
            trace.launch("forward")
        begin = trace.now
        for device, thread in enumerate(threads):
            with trace.on_thread(thread, wait=False):
                trace.work(max(0, begin - trace.now) / 1000)
                for _ in range(4):
                    with trace.op(f"MmBackward{device}"):
                        trace.launch("backward", device=device, host_us=4 + device)
                        trace.work(device)
        trace.work(200)


def operators_of_launches(timeline: Timeline) -> list[str]:
    host = timeline.host
    return sorted(timeline.text(host.name[op]) for op in host.op[timeline.device.launch].tolist())


def test_calls_of_autograds_thread_are_with_its_operators() -> None:
    trace = TraceBuilder()
    backward_of(trace, [AUTOGRAD])
    document = rewritten(document_of(trace))
    calls = {e["tid"] for e in document["traceEvents"] if e.get("cat") == "cuda_runtime"}
    assert calls == {MAIN, opaque(AUTOGRAD)}
    timeline = timeline_of(document)
    assert operators_of_launches(timeline) == ["MmBackward0"] * 8 + ["aten::mm"] * 2


def test_each_of_several_threads_of_calls_finds_its_own_operators() -> None:
    trace = TraceBuilder(devices=("NVIDIA H200",) * 3)
    backward_of(trace, [445, 446, 447])
    timeline = timeline_of(rewritten(document_of(trace)))
    assert operators_of_launches(timeline) == operators_of_launches(trace.timeline())


def test_calls_of_an_annotation_that_has_an_operators_number_are_with_their_own_operators() -> None:
    trace = TraceBuilder()
    with trace.op("the first"), trace.on_thread(AUTOGRAD), trace.op("the second"):
        trace.launch("backward")
    with trace.annotation("the first"):
        trace.work(10)
    with trace.annotation("the second"), trace.op("aten::mm"):
        trace.launch("forward")
    document = rewritten(document_of(trace))
    calls = [e["tid"] for e in document["traceEvents"] if e.get("cat") == "cuda_runtime"]
    assert calls == [opaque(AUTOGRAD), AUTOGRAD]
    assert operators_of_launches(timeline_of(document)) == ["aten::mm", "the second"]


def test_calls_of_an_annotation_in_the_backward_pass_are_with_their_own_operators() -> None:
    trace = TraceBuilder()
    with trace.op("the first"):
        trace.launch("forward")
    hook = (trace.op("Backward0"), trace.annotation("hook"), trace.op("all_gather"))
    with trace.frame("train.py", 9, "backward"), trace.on_thread(AUTOGRAD), hook[0], hook[1], hook[2]:
        trace.launch("gather")
    document = rewritten(document_of(trace))
    calls = [e["tid"] for e in document["traceEvents"] if e.get("cat") == "cuda_runtime"]
    assert calls == [MAIN, MAIN]
    assert operators_of_launches(timeline_of(document)) == ["all_gather", "the first"]


def test_calls_that_no_operator_made_stay_on_their_thread() -> None:
    trace = TraceBuilder()
    with trace.op("aten::mm"):
        trace.launch("gemm")
    with trace.on_thread(9):
        for _ in range(5):
            trace.launch("of another library")
    timeline = timeline_of(rewritten(document_of(trace)))
    host, launch = timeline.host, timeline.device.launch
    assert (host.op[launch] >= 0).tolist() == [True] + [False] * 5
    assert len(set(host.thread[launch].tolist())) == 2


def test_no_call_moves_if_calls_have_the_ids_of_operators() -> None:
    trace = TraceBuilder()
    backward_of(trace, [AUTOGRAD])
    document = document_of(trace)
    for event in document["traceEvents"]:
        if event["cat"] == "cuda_runtime" and event["tid"] == AUTOGRAD:
            event["tid"] = 77
    host = timeline_of(document).host
    launches = host.thread[host.kind == HostKind.LAUNCH]
    assert len(set(launches.tolist())) == 2
    assert not set(launches[2:].tolist()) & set(host.thread[host.kind == HostKind.OP].tolist())


def graphs() -> TraceBuilder:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("serve.py", 7, "decode"):
            with trace.op("aten::copy_"):
                trace.copy("HtoD", 3)
            trace.graph([10, 20, 30, 40])
            trace.item()
    return trace


def test_ops_on_display_lanes_ran_on_their_stream() -> None:
    document = rewritten(document_of(graphs()), lanes=True)
    lanes = {e["args"]["stream"] for e in document["traceEvents"] if e.get("cat") == "kernel"}
    assert lanes == {100_000, 100_001, 100_002}
    assert timeline_of(document).streams.stream.tolist() == [7]


def said_of(document: Event, folder: Path, step: str | None = None) -> Result:
    path = folder / "second.json"
    path.write_text(json.dumps(document))
    return explain(path, step=step).result


@pytest.mark.parametrize("name", ["made", GRAPHS[0], pytest.param(GRAPHS[1], marks=pytest.mark.slow)])
def test_a_file_with_display_lanes_explains_as_one_without(name: str, tmp_path: Path) -> None:
    document = document_of(graphs()) if name == "made" else recorded(name)
    plain = said_of(rewritten(document), tmp_path)
    assert plain.findings
    assert said_of(rewritten(document, lanes=True), tmp_path) == plain
    assert said_of(rewritten(document, lanes=True, dependencies=True), tmp_path) == plain


@functools.cache
def recorded(name: str) -> Event:
    document: Event = json.loads(gzip.decompress((EXAMPLES / f"{name}.json.gz").read_bytes()))
    return document


def found(result: Result) -> dict[tuple[object, ...], int]:
    """What each finding exposes, by its rule and its place."""
    return {
        (f.rule, f.where.file, f.where.line, f.where.function, f.where.op, f.harmless): f.exposed_ns
        for f in result.findings
    }


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RECORDINGS]
)
def test_a_recording_in_the_second_shape_has_the_same_findings(name: str, tmp_path: Path) -> None:
    step = EXPECTED.get(name.split(".")[0], {}).get("step_name")
    kineto = explain(EXAMPLES / f"{name}.json.gz", step=step).result
    second = said_of(rewritten(recorded(name)), tmp_path, step)
    assert found(second) == pytest.approx(found(kineto), rel=0.05, abs=100)
    assert second.verdict.bound_by == kineto.verdict.bound_by
    assert second.integrity == kineto.integrity


# What is not known, and what is not there.


def work(category: str, number: int = 1, **more: Any) -> list[Event]:
    event = {"ph": "X", "cat": category, "name": "work", "pid": 0, "tid": 7, "ts": 20.0, "dur": 5.0}
    return [event | {"args": {"device": 0, "stream": 7}} | more for _ in range(number)]


def with_events(*more: list[Event]) -> Event:
    trace = TraceBuilder()
    with trace.op("aten::mm"):
        trace.launch("gemm")
    document = document_of(trace)
    document["traceEvents"] += [event for events in more for event in events]
    return document


def test_device_events_of_kinds_that_are_not_known_are_counted_and_told() -> None:
    meta = timeline_of(with_events(work("bar", 2), work("gpu_foo", 3), work("", name="blit"))).meta
    assert meta.notes == ("6 device events of kinds that are not known were left out: gpu_foo (3), bar (2), blit (1)",)
    assert not meta.sound


def test_one_is_told_as_one() -> None:
    meta = timeline_of(with_events(work("gpu_foo"))).meta
    assert meta.notes == ("1 device event of a kind that is not known was left out: gpu_foo (1)",)


def test_of_many_kinds_the_most_frequent_are_named() -> None:
    kinds = [work(f"kind_{i}", 9 - i) for i in range(7)]
    (note,) = timeline_of(with_events(*kinds)).meta.notes
    assert note.endswith("kind_0 (9), kind_1 (8), kind_2 (7), kind_3 (6), kind_4 (5), 2 more kinds")


def test_events_that_take_no_time_cost_no_trust() -> None:
    meta = timeline_of(with_events(work("marker", dur=0))).meta
    assert meta.notes == ("1 device event of a kind that is not known was left out: marker (1)",)
    assert meta.sound


GPU_0 = {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}}


def test_an_event_in_a_process_labelled_gpu_is_one_of_the_device() -> None:
    assert timeline_of(with_events(work("gpu_foo", args={}))).meta.notes == ()
    assert len(timeline_of(with_events([GPU_0], work("gpu_foo", args={}))).meta.notes) == 1


def test_a_program_with_the_number_of_a_gpu_is_none() -> None:
    trace = TraceBuilder()
    with trace.op("aten::mm"):
        trace.launch("gemm")
    document = document_of(trace)
    labels = [GPU_0 | {"pid": 400, "args": {"labels": "GPU 400"}}]
    document["traceEvents"] += labels + work("library", pid=400, tid=400, args={})
    assert timeline_of(document).meta.notes == ()


def test_what_is_known_to_be_no_work_is_left_out_without_a_word() -> None:
    known = [work(kind) for kind in ("gpu_user_annotation", "graph_event_node", "cuda_event", "cuda_sync")]
    assert timeline_of(with_events(*known)).meta.notes == ()


def test_callbacks_of_the_host_in_a_graph_are_told() -> None:
    (note,) = timeline_of(with_events(work("graph_host_node", 2, name="HostNode: f"))).meta.notes
    assert note == "2 callbacks of the host in CUDA graphs were left out: while one runs, the device counts as idle"


def test_copies_that_do_not_say_their_direction_are_told() -> None:
    trace = TraceBuilder()
    with trace.op("aten::copy_"):
        trace.copy("HtoD", 5)
        trace.copy("DtoH", 5)
    document = rewritten(document_of(trace))
    copies = [event for event in document["traceEvents"] if event.get("cat") == "gpu_memcpy"]
    copies[0]["args"]["copy kind"] = 77
    timeline = timeline_of(document)
    assert names(timeline) == ["Memcpy", "Memcpy DtoH (Device -> Pinned)"]
    assert timeline.meta.notes == (
        "1 of 2 copies do not say their direction: they count as work, and cause no finding",
    )


@functools.cache
def whole() -> str:
    return json.dumps(rewritten(document_of(graphs()), lanes=True, dependencies=True))


WRONG: st.SearchStrategy[Any] = st.sampled_from([None, True, -1, 7, 1.5, 2**70, "", "text", [], {}, "absent"])


@given(st.lists(st.tuples(st.integers(0, 199), st.integers(0, 19), WRONG), max_size=12))
def test_fields_that_are_missing_or_wrong_cost_no_event(changes: list[tuple[int, int, Any]]) -> None:
    document = json.loads(whole())
    rows = [e for e in document["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "cuda_runtime")]
    for row, key, value in changes:
        args = rows[row % len(rows)]["args"]
        if keys := sorted(args):
            name = keys[key % len(keys)]
            args[name] = value
            if value == "absent":
                del args[name]
    assert len(timeline_of(document).device) == 3 * len(["copy", 1, 2, 3, 4, "item"])
