"""Joins: every event gets its parent, operator, stack and launch, whatever the recorder called it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from profiles import examples
from programs import Program, programs
from traces import PROCESS, Event, TraceBuilder

from unstall.timeline.columns import DeviceKind, HostKind, Timeline

A_FEW = examples(20)


def rows(timeline: Timeline, name: str) -> list[int]:
    """Host rows of that name, by time."""
    found = [row for row in range(len(timeline.host)) if timeline.text(int(timeline.host.name[row])) == name]
    return sorted(found, key=lambda row: int(timeline.host.start[row]))


def row(timeline: Timeline, name: str) -> int:
    (found,) = rows(timeline, name)
    return found


def frames(timeline: Timeline, host_row: int) -> list[str]:
    """The functions on the stack of a host event, innermost first."""
    node, functions = int(timeline.host.stack[host_row]), []
    while node >= 0:
        functions.append(timeline.text(int(timeline.lines.function[timeline.stacks.line[node]])))
        node = int(timeline.stacks.parent[node])
    return functions


def event(category: str, name: str, start: int, duration: int, **args: Any) -> Event:
    fields = {"pid": PROCESS, "tid": PROCESS, "ts": start * 1000, "dur": duration * 1000}
    return {"ph": "X", "cat": category, "name": name, **fields, "args": args}


def timeline_of(*events: Event) -> Timeline:
    return TraceBuilder().timeline(events)


class TestAnyProgram:
    @A_FEW
    @given(programs())
    def test_host_events_stand_before_what_they_call(self, program: Program) -> None:
        host = program.timeline().host
        order = np.lexsort((-host.end, host.start, host.thread))
        assert (np.diff(host.thread[order]) >= 0).all()
        assert (host.start == host.start[order]).all()
        assert (host.end == host.end[order]).all()
        inner = np.flatnonzero((host.parent >= 0) & (host.kind != HostKind.OVERHEAD))  # of all threads on one row
        outer = host.parent[inner]
        assert (outer < inner).all()
        assert (host.thread[outer] == host.thread[inner]).all()
        assert (host.start[outer] <= host.start[inner]).all()
        assert (host.end[outer] >= host.end[inner]).all()

    @A_FEW
    @given(programs())
    def test_an_operators_own_row_is_its_operator_and_a_calls_the_nearest_around(self, program: Program) -> None:
        host = program.timeline().host
        ops = np.flatnonzero(host.kind == HostKind.OP)
        assert (host.op[ops] == ops).all()
        others = np.flatnonzero((host.kind != HostKind.OP) & (host.parent >= 0))
        assert (host.op[others] == host.op[host.parent[others]]).all()

    @A_FEW
    @given(programs())
    def test_every_device_op_is_launched_by_the_call_of_its_correlation(self, program: Program) -> None:
        timeline = program.timeline()
        device, host = timeline.device, timeline.host
        assert (host.correlation[device.launch] == device.correlation).all()
        assert (host.start[device.launch] < device.start).all()
        assert (np.diff(device.start) >= 0).all()
        assert (host.kind[device.launch[device.kind == DeviceKind.COPY]] == HostKind.COPY).all()
        assert timeline.meta.sound

    @A_FEW
    @given(programs())
    def test_all_host_and_device_events_of_the_file_are_there(self, program: Program) -> None:
        timeline = program.timeline()
        device = [each for each in program.events if each["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        waits = [each for each in program.events if each["cat"] == "cuda_sync"]
        assert len(timeline.device) == len(device)
        assert len(timeline.host) == len(program.events) - len(device) - len(waits)
        assert sorted(timeline.device.end - timeline.device.start) == sorted(each["dur"] for each in device)

    @A_FEW
    @given(programs())
    def test_old_names_of_categories_mean_the_same(self, program: Program) -> None:
        old = {
            "cpu_op": "Operator",
            "kernel": "Kernel",
            "cuda_runtime": "Runtime",
            "gpu_memcpy": "Memcpy",
            "gpu_memset": "Memset",
        }
        renamed = [each | {"cat": old.get(each["cat"], each["cat"])} for each in program.events]
        new, same = program.timeline(), program.timeline(renamed)
        for name, table in new.tables.items():
            if name not in ("threads", "lines"):  # texts have other numbers
                for column in set(table.__struct_fields__) - {"name", "shapes"}:
                    assert getattr(table, column).tolist() == getattr(same.tables[name], column).tolist()


class TestKinds:
    def test_spans_written_as_operators_are_annotations(self) -> None:
        timeline = timeline_of(event("Operator", "ProfilerStep#1", 0, 10), event("Operator", "aten::mm", 1, 5))
        assert timeline.host.kind.tolist() == [HostKind.ANNOTATION, HostKind.OP]

    @pytest.mark.parametrize("category", ["gpu_user_annotation", "Trace", "cuda_profiler_range", "something new"])
    def test_rows_that_are_no_work_are_left_out(self, category: str) -> None:
        timeline = timeline_of(event(category, "ProfilerStep#1", 0, 10, device=0, stream=7, correlation=3))
        assert (len(timeline.host), len(timeline.device)) == (0, 0)


class TestOperators:
    def test_a_call_that_no_operator_encloses_is_its_whose_id_it_carries(self) -> None:
        """On another thread, but while the operator runs."""
        other = event("cuda_runtime", "cudaLaunchKernel", 10, 5, **{"External id": 4, "correlation": 1})
        timeline = timeline_of(event("cpu_op", "aten::mm", 0, 100, **{"External id": 4}), other | {"tid": 999})
        assert timeline.host.op[row(timeline, "cudaLaunchKernel")] == row(timeline, "aten::mm")

    def test_an_id_of_an_operator_that_is_over_means_nothing(self) -> None:
        late = event("cuda_runtime", "cudaLaunchKernel", 200, 5, **{"External id": 4, "correlation": 1})
        timeline = timeline_of(event("cpu_op", "aten::mm", 0, 100, **{"External id": 4}), late)
        assert timeline.host.op[row(timeline, "cudaLaunchKernel")] == -1

    def test_shapes_are_kept_as_text(self) -> None:
        trace = TraceBuilder()
        with trace.op("aten::mm", shapes=[[2, 3], [3, 4]]):
            trace.work(1)
        timeline = trace.timeline()
        assert timeline.text(int(timeline.host.shapes[0])).replace(" ", "") == "[[2,3],[3,4]]"


class TestStacks:
    def test_the_frames_around_an_event_are_its_stack(self) -> None:
        trace = TraceBuilder()
        with (
            trace.frame("train.py", 80, "main"),
            trace.frame("net.py", 30, "forward"),
            trace.named_frame("<built-in method mm of type object at 0x7f00>"),
            trace.op("aten::mm"),
        ):
            trace.launch("gemm", 10)
        timeline = trace.timeline()
        expected = ["<built-in method mm of type>", "forward", "main"]
        assert frames(timeline, row(timeline, "aten::mm")) == expected
        assert frames(timeline, row(timeline, "cudaLaunchKernel")) == expected
        assert timeline.meta.has_stacks

    def test_one_frame_called_a_hundred_times_is_one_row(self) -> None:
        trace = TraceBuilder()
        with trace.frame("train.py", 80, "main"):
            for i in range(100):
                with trace.frame("net.py", 30, "forward"), trace.named_frame(f"<built-in method mm of X at 0x{i:x}>"):
                    trace.launch("gemm", 1)
        timeline = trace.timeline()
        assert (len(timeline.stacks), len(timeline.lines)) == (3, 3)

    def test_one_function_called_from_two_is_two_stacks_and_one_line(self) -> None:
        trace = TraceBuilder()
        for caller in ("train", "evaluate"):
            with trace.frame("train.py", 80, caller), trace.frame("net.py", 30, "forward"):
                trace.launch("gemm", 1)
        timeline = trace.timeline()
        assert (len(timeline.stacks), len(timeline.lines)) == (4, 3)

    def test_call_stack_texts_serve_where_no_frames_were_recorded(self) -> None:
        text = "<built-in method mm>;net.py(30): forward;train.py(80): main;"
        op = event("cpu_op", "aten::mm", 0, 10, **{"Call stack": text})
        timeline = timeline_of(op, event("cuda_runtime", "cudaLaunchKernel", 1, 5, correlation=1))
        assert frames(timeline, row(timeline, "cudaLaunchKernel")) == ["<built-in method mm>", "forward", "main"]

    def test_frames_are_preferred_to_texts(self) -> None:
        op = event("cpu_op", "aten::mm", 1, 10, **{"Call stack": "other.py(1): other"})
        timeline = timeline_of(event("python_function", "net.py(30): forward", 0, 20), op)
        assert frames(timeline, row(timeline, "aten::mm")) == ["forward"]

    def test_without_either_there_is_no_stack(self) -> None:
        timeline = timeline_of(event("cpu_op", "aten::mm", 0, 10))
        assert timeline.host.stack.tolist() == [-1]
        assert not timeline.meta.has_stacks


class TestLines:
    """Of which line of a function a frame is: of its first, unless the file says that lines are those that ran."""

    def of(self, **said: str) -> dict[int, bool]:
        trace = TraceBuilder(operators=False, unstall={"recorder": "cupti", **said})
        with trace.frame("train.py", 41, "step"), trace.named_frame("<built-in method item of Tensor object at 0x7f>"):
            trace.launch()
        lines = trace.timeline().lines
        return dict(zip(lines.line.tolist(), lines.exact.tolist(), strict=True))

    def test_lines_that_ran_are_exact_and_built_in_functions_have_none(self) -> None:
        assert self.of(lines="exact") == {41: True, -1: False}

    @pytest.mark.parametrize("said", [{}, {"lines": "def"}, {"lines": "none"}, {"lines": "EXACT"}])
    def test_others_are_the_functions_first(self, said: dict[str, str]) -> None:
        assert self.of(**said) == {41: False, -1: False}

    def test_a_line_s_stretches_are_one_place_and_the_lines_of_a_function_are_several(self) -> None:
        trace = TraceBuilder(operators=False, unstall={"lines": "exact"})
        for _ in range(3):
            for line in (41, 42):
                with trace.frame("train.py", line, "step"):
                    trace.launch(f"kernel_{line}")
        timeline = trace.timeline()
        launch = timeline.device.launch
        at = timeline.lines.line[timeline.stacks.line[timeline.host.stack[launch]]]
        assert at.tolist() == [41, 42, 41, 42, 41, 42]
        assert len(timeline.stacks) == 2

    def test_of_frames_with_the_same_times_the_first_in_the_file_is_the_outer_one(self) -> None:
        both = [event("python_function", name, 0, 9) for name in ("train.py(41): step", "net.py(7): forward")]
        call = event("cuda_runtime", "cudaLaunchKernel", 3, 2)
        for order, innermost in ((1, "forward"), (-1, "step")):
            timeline = TraceBuilder().timeline([*both[::order], call])
            assert frames(timeline, row(timeline, "cudaLaunchKernel"))[0] == innermost


class TestStreams:
    def test_device_and_stream_come_from_the_arguments(self) -> None:
        trace = TraceBuilder(devices=("first", "second"))
        trace.launch("gemm", 10, device=1, stream=20)
        timeline = trace.timeline()
        assert (timeline.streams.device.tolist(), timeline.streams.stream.tolist()) == ([1], [20])

    def test_else_from_process_and_thread(self) -> None:
        old = event("Kernel", "gemm", 0, 10) | {"pid": 1, "tid": "stream 7"}
        timeline = timeline_of(old)
        assert (timeline.streams.device.tolist(), timeline.streams.stream.tolist()) == ([1], [7])


class TestLaunches:
    def launch(self, at: int, correlation: int, *, name: str = "cudaLaunchKernel", process: int = PROCESS) -> Event:
        return event("cuda_runtime", name, at, 5, correlation=correlation) | {"pid": process}

    def kernel(self, at: int, correlation: int) -> Event:
        on = {"device": 0, "stream": 7, "correlation": correlation}
        return event("kernel", "gemm", at, 10, **on) | {"pid": 0, "tid": 7}

    def test_of_calls_with_one_correlation_the_last_before_the_op_launched_it(self) -> None:
        """Ids repeat in a file of several processes, or of a recorder that was started twice."""
        pairs = [(self.launch(at, 1, process=400 + at), self.kernel(at + 7, 1)) for at in (0, 100, 200, 300)]
        timeline = timeline_of(*(each for pair in pairs for each in pair))
        assert timeline.host.start[timeline.device.launch].tolist() == [0, 100_000, 200_000, 300_000]

    def test_a_call_that_cannot_launch_never_wins_over_one_that_can(self) -> None:
        timeline = timeline_of(
            self.launch(0, 1), self.launch(6, 1, name="cudaGetDevice", process=401), self.kernel(20, 1)
        )
        assert timeline.text(int(timeline.host.name[timeline.device.launch[0]])) == "cudaLaunchKernel"

    def test_ops_without_a_call_are_counted_and_make_the_run_unsound(self) -> None:
        timeline = timeline_of(self.launch(0, 1), self.kernel(7, 1), self.kernel(20, 2), self.kernel(40, -1))
        assert timeline.device.launch.tolist()[1:] == [-1, -1]
        assert "2 of 3 device ops have no host call in the file" in timeline.meta.notes[0]
        assert not timeline.meta.sound

    def test_ops_from_before_the_first_call_are_no_damage_and_are_told(self) -> None:
        """As the ids say, which count up: here a copy of the recording went ahead of what another stream had queued."""
        timeline = timeline_of(self.kernel(0, 1), self.kernel(10, 2), self.launch(5, 3), self.kernel(20, 3))
        assert timeline.device.launch.tolist() == [-1, -1, 0]
        assert timeline.queued_before.tolist() == [True, True, False]
        assert timeline.meta.notes == ("2 of 3 device ops were launched before the recording began",)
        assert timeline.meta.sound

    @pytest.mark.parametrize(
        "kernels",
        [
            [(20, 5), (40, 4)],  # behind one of the recording
            [(20, 6), (40, 5)],  # a later call's
            [(20, -1), (40, 5)],
        ],
    )
    def test_an_op_that_may_be_of_the_recording_has_lost_its_call(self, kernels: list[tuple[int, int]]) -> None:
        timeline = timeline_of(self.launch(5, 5), *(self.kernel(*kernel) for kernel in kernels))
        assert "1 of 2 device ops have no host call in the file" in timeline.meta.notes[0]
        assert not timeline.meta.sound

    def test_so_has_one_whose_operator_is_there(self) -> None:
        operator, lost = event("cpu_op", "aten::mm", 0, 9, **{"External id": 4}), self.kernel(10, 1)
        lost["args"]["External id"] = 4
        assert not timeline_of(operator, lost, self.launch(12, 2), self.kernel(20, 2)).meta.sound

    @pytest.mark.parametrize(("correlation", "sound"), [(-1, True), (1, False)])
    def test_the_virtual_gpu_gives_ids_to_all_that_it_saw_launched(self, correlation: int, sound: bool) -> None:
        trace = TraceBuilder(unstall={"recorder": "virtual"})
        timeline = trace.timeline([self.launch(5, 2), self.kernel(10, correlation), self.kernel(20, 2)])
        assert timeline.meta.sound == sound
        assert len(timeline.meta.notes) == (not sound)

    def test_ops_that_start_before_their_call_tell_of_clocks_that_are_not_aligned(self) -> None:
        timeline = timeline_of(self.launch(100, 1), self.kernel(20, 1))
        assert timeline.device.launch.tolist() == [0]
        assert "1 device ops start before the call that launched them" in timeline.meta.notes[0]
        assert not timeline.meta.sound

    def test_a_microsecond_of_rounding_tells_nothing(self) -> None:
        assert timeline_of(self.launch(100, 1), self.kernel(99, 1)).meta.sound


class TestThreads:
    def test_threads_of_two_processes_are_two_even_with_one_number(self) -> None:
        first = event("cpu_op", "aten::mm", 0, 10)
        timeline = timeline_of(first, first | {"pid": 401})
        assert len(timeline.threads) == 2
        assert timeline.host.parent.tolist() == [-1, -1]


class TestForward:
    def test_a_node_and_all_below_it_belong_to_the_operator_of_their_sequence_number(self) -> None:
        trace = TraceBuilder()
        with trace.op("aten::linear", sequence=3), trace.op("aten::addmm", sequence=3):
            trace.launch("gemm", 10)
        with trace.op("aten::relu", sequence=4):
            trace.launch("relu", 10)
        with trace.backward("AddmmBackward0", 3), trace.op("aten::mm"):
            trace.launch("gemm", 10)
        timeline = trace.timeline()
        forward = timeline.host.forward
        addmm = row(timeline, "aten::addmm")
        assert forward[row(timeline, "AddmmBackward0")] == addmm
        assert forward[row(timeline, "aten::mm")] == addmm
        assert forward[rows(timeline, "cudaLaunchKernel")[-1]] == addmm
        assert forward[row(timeline, "aten::relu")] == -1

    def test_without_sequence_numbers_arrows_tell(self) -> None:
        backward = event("cpu_op", "MmBackward0", 50, 10) | {"tid": 445}
        arrow: Event = {"cat": "fwdbwd", "name": "fwdbwd", "id": 9, "pid": PROCESS, "dur": 0}
        timeline = timeline_of(
            event("cpu_op", "aten::mm", 0, 10),
            event("cpu_op", "aten::relu", 20, 10),
            backward,
            arrow | {"ph": "s", "tid": PROCESS, "ts": 0},
            arrow | {"ph": "f", "tid": 445, "ts": 50_000, "bp": "e"},
        )
        assert timeline.host.forward[row(timeline, "MmBackward0")] == row(timeline, "aten::mm")

    def test_a_number_that_only_comes_later_is_another_node(self) -> None:
        """Recording began between forward and backward."""
        trace = TraceBuilder()
        with trace.backward("MmBackward0", 3):
            trace.launch("gemm", 10)
        with trace.op("aten::mm", sequence=3):
            trace.launch("gemm", 10)
        assert set(trace.timeline().host.forward.tolist()) == {-1}


class TestExternalIds:
    """A trace without correlation ids, in which each call and its op have an "External id" of their own."""

    def timeline(self, *ids: int) -> Timeline:
        calls = [event("cuda_runtime", "hipLaunchKernel", 10 * i, 2) for i in range(len(ids))]
        ops = [event("kernel", "gemm", 100 + 10 * i, 5) for i in range(len(ids))]
        for made in (calls, ops):
            for each, number in zip(made, ids, strict=True):
                each["args"] = {"External id": number, "device": 0, "stream": 0}
        return timeline_of(*calls, *ops)

    def test_they_tell_who_launched_what(self) -> None:
        timeline = self.timeline(25, 26, 28)
        assert timeline.device.launch.tolist() == rows(timeline, "hipLaunchKernel")
        assert timeline.meta.sound

    def test_of_an_operator_that_launched_twice_they_do_not(self) -> None:
        assert set(self.timeline(25, 25, 28).device.launch.tolist()) == {-1}
