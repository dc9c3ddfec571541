"""A part of a timeline by time is a timeline: its rows, and what they point to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.answers.explain import explain
from unstall.diagnose.analyse import analyse
from unstall.guest.step_source import StepSource
from unstall.locate.steps import find_steps
from unstall.read import load
from unstall.replay.build import build
from unstall.replay.engine import replay
from unstall.timeline.columns import Timeline
from unstall.virtual.profiler.frames import with_frames
from unstall.virtual.profiler.trace_file import write_trace
from unstall.virtual.timeline.steps import with_found_steps, with_steps
from unstall.virtual.timeline.window import cut

_PROGRAMS = Path(__file__).parent / "programs"
_TRACES = Path(__file__).parents[3] / "examples" / "traces"


@pytest.fixture(scope="module")
def run() -> Timeline:
    return load(_TRACES / "two_streams.json.gz")


def test_all_of_the_time_is_all_of_the_run(run: Timeline) -> None:
    same = cut(run, 0, 2**62)
    for name, table in run.tables.items():
        for column in table.__struct_fields__:
            assert list(getattr(same.tables[name], column)) == list(getattr(table, column))


def test_two_parts_hold_each_event_once_but_what_was_queued_and_can_be_saved(run: Timeline, tmp_path: Path) -> None:
    middle = int(run.host.start[len(run.host) // 2])
    parts = [cut(run, 0, middle), cut(run, middle, 2**62)]
    for name in ("host", "waits"):
        assert sum(len(part.tables[name]) for part in parts) == len(run.tables[name])
    queued = (run.host.start[run.device.launch] < middle) & (run.device.end > middle)
    assert queued.any()
    assert sum(len(part.device) for part in parts) == len(run.device) + queued.sum()
    assert (parts[1].device.launch < 0).sum() == queued.sum()
    assert min(parts[1].host.start.min(), parts[1].device.start.min()) == 0
    for part in parts:
        part.save(tmp_path / "part")
        load(tmp_path / "part")  # checks that every index points somewhere


def test_a_kept_kernel_was_launched_by_the_call_that_launched_it(run: Timeline) -> None:
    middle = int(run.host.start[len(run.host) // 2])
    part = cut(run, middle, 2**62)
    launched = part.device.launch >= 0
    assert launched.any()
    assert (part.host.correlation[part.device.launch[launched]] == part.device.correlation[launched]).all()


def test_marks_become_steps_and_the_rows_keep_what_they_point_to(run: Timeline, tmp_path: Path) -> None:
    end = int(run.host.end.max())
    marks = [end * part // 32 for part in (1, 16, 31)]  # next to nothing comes before the first
    marked = with_steps(run, marks)
    names = [marked.text(name) for name in marked.host.name]
    steps = [row for row, name in enumerate(names) if name.startswith("unstall.step#")]
    assert [(marked.host.start[row], marked.host.end[row]) for row in steps] == [
        (marks[0], marks[1]),
        (marks[1], marks[2]),
    ]
    assert len(marked.host) == len(run.host) + 2
    launched = marked.device.launch >= 0
    assert (
        marked.host.correlation[marked.device.launch[launched]] == run.host.correlation[run.device.launch[launched]]
    ).all()
    marked.save(tmp_path / "marked")
    load(tmp_path / "marked")


@pytest.mark.parametrize(("before", "steps"), [(1, 2), (4, 3)])
def test_what_comes_before_the_first_mark_is_a_step_if_it_launched_as_much(before: int, steps: int) -> None:
    trace, marks = TraceBuilder(), []
    for launches in (before, 4, 4):
        for _ in range(launches):
            trace.launch("gemm", 10)
        marks.append(trace.now)
    assert len(find_steps(with_steps(trace.timeline(), marks))) == steps


def test_steps_of_an_optimizer_in_checks_of_graphed_are_not_the_programs() -> None:
    """Six steps by graphs, which no annotation shows. Before the second, graphed steps the optimizer nine times."""
    trace, times = TraceBuilder(), []
    for step in range(6):
        for _ in range(9 if step == 1 else 0):
            with trace.frame("unstall/fix/graphs/serving.py", 250, "GraphServer._observe"):
                with trace.op("aten::mm"):
                    trace.launch("gemm", 100)
                with trace.optimizer():
                    trace.launch("sgd", 10)
        with trace.frame("train.py", 12, "train"):
            trace.graph([100, 10])
            trace.sync()
        times.append(trace.now)
    timeline = with_found_steps(trace.timeline(), [(StepSource("optimizer", 1), at_ns) for at_ns in times])
    assert timeline.meta.step_marks == "optimizer"
    steps = find_steps(timeline)
    assert len(steps) == 4
    assert steps.left_out is not None
    assert (steps.left_out.proving, steps.left_out.of) == (1, 5)


@pytest.mark.parametrize(("eager", "replayed", "after"), [(3, 8, 0), (30, 8, 0), (30, 8, 4), (30, 0, 8)])
def test_steps_that_a_program_replays_count_however_many_came_before_the_capture(
    eager: int, replayed: int, after: int
) -> None:
    trace, times = TraceBuilder(), []

    def train() -> None:
        trace.launch("gemm", 100)
        with trace.optimizer():
            trace.launch("sgd", 10)

    for _ in range(eager):
        train()
    for _ in range(replayed):
        trace.graph([100, 10])
        times.append(trace.now)
    for _ in range(after):
        train()
        times.append(trace.now)
    timeline = with_found_steps(trace.timeline(), [(StepSource("optimizer", 1), at_ns) for at_ns in times])
    seen = replayed > 0
    assert timeline.meta.step_marks == ("optimizer" if seen else None)
    assert len(find_steps(timeline)) == (replayed + after - 1 if seen else eager + after)


def test_a_lone_mark_ends_a_step_that_began_with_the_run(run: Timeline) -> None:
    marked = with_steps(run, [5_000])
    names = [marked.text(name) for name in marked.host.name]
    row = names.index("unstall.step#0")
    assert (marked.host.start[row], marked.host.end[row]) == (0, 5_000)


class TestSteps:
    """Steps of a window take as long as those of the whole run: it does not pay for what the device had queued."""

    def of_batches(self, kernels_us: float, copy_us: float, *, beside: bool) -> Timeline:
        """A program that the device is behind, with a copy a step, on a stream of its own or not."""
        trace = TraceBuilder()
        for _ in range(12):
            with trace.step():
                trace.copy("HtoD", copy_us, stream=20 if beside else 7)
                copied = trace.record(stream=20 if beside else 7)
                trace.stream_wait(copied, stream=7)
                trace.graph([kernels_us] * 4)
        timeline = trace.timeline()
        return timeline.with_meta(recorder="virtual")

    @given(
        kernels_us=st.sampled_from([1, 20, 100]),
        copy_us=st.sampled_from([1, 10, 50]),
        beside=st.booleans(),
        first=st.integers(1, 10),
        count=st.integers(1, 10),
    )
    def test_of_a_window_they_are_as_long_as_of_the_whole_run(
        self, kernels_us: float, copy_us: float, beside: bool, first: int, count: int
    ) -> None:
        whole = self.of_batches(kernels_us, copy_us, beside=beside)
        lengths, part = lengths_in(whole, first, min(count, 12 - first))
        assert analyse(part).step_lengths.tolist() == lengths

    def test_so_the_replay_has_them(self) -> None:
        lengths, part = lengths_in(self.of_batches(100, 10, beside=True), 6, 5)
        steps = find_steps(part)
        program = build(part, steps.start, steps.end)
        assert replay(program).mean_step_ns(program) == pytest.approx(sum(lengths) / 5, rel=0.01)

    @given(beside=st.booleans(), first=st.integers(0, 9), count=st.integers(1, 3))
    def test_the_trace_of_a_window_is_explained_as_the_window_is(self, beside: bool, first: int, count: int) -> None:
        part = lengths_in(self.of_batches(100, 10, beside=beside), first, count)[1]
        with TemporaryDirectory() as folder:
            told = written_and_read(part, Path(folder))
        assert told.meta.sound
        assert told.waits.inferred.tolist() == part.waits.inferred.tolist()
        assert answer(told) == answer(part)

    def test_calls_that_its_trace_has_lost_are_told(self, tmp_path: Path) -> None:
        part = lengths_in(self.of_batches(100, 10, beside=True), 6, 5)[1]
        lost = np.array([part.device.launch.max()])
        launch = np.where(np.isin(part.device.launch, lost), -1, part.device.launch)
        told = written_and_read(replace(part, device=replace(part.device, launch=launch)), tmp_path)
        assert not told.meta.sound
        assert "4 of " in told.meta.notes[0]

    @pytest.mark.slow
    @pytest.mark.parametrize("how", ["plain", "prefetched", "graphed", "prefetched graphed"])
    def test_of_a_program_too(self, how: str, tmp_path: Path) -> None:
        path = tmp_path / "run.timeline"
        subprocess.run([sys.executable, str(_PROGRAMS / "run_ahead.py"), str(path), *how.split()], check=True)
        whole = load(path)
        for first, count in ((4, 20), (6, 10), (20, 5), (30, 1)):
            lengths, part = lengths_in(whole, first, count)
            found = analyse(part).step_lengths
            assert np.median(found) == pytest.approx(np.median(lengths), rel=1e-3)
            assert found.mean() == pytest.approx(np.mean(lengths), rel=1e-3)
            assert answer(with_frames(part)) == answer(written_and_read(part, tmp_path))


def lengths_in(whole: Timeline, first: int, count: int) -> tuple[list[int], Timeline]:
    """ns of so many steps of the whole run, and the window of these alone."""
    run = analyse(whole)
    start, end = int(run.steps.start[first]), int(run.steps.end[first + count - 1])
    return run.step_lengths[first : first + count].tolist(), cut(whole, start, end)


def written_and_read(part: Timeline, folder: Path) -> Timeline:
    write_trace(part, folder / "part.json")
    return load(folder / "part.json")


def answer(timeline: Timeline) -> dict[str, Any]:
    """What is said of it, but for where it came from."""
    said: dict[str, Any] = json.loads(explain(timeline).to_json())
    del said["source"]
    return said
