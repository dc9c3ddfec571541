"""One cause planted in a program is the one that the accounts name, to the nanosecond."""

from __future__ import annotations

import msgspec
import pytest
from findings import result_of
from traces import AUTOGRAD, TraceBuilder

from unstall.diagnose.analyse import analyse
from unstall.result import IDLE_CAUSES, Accounts


def idle(trace: TraceBuilder) -> dict[str, int]:
    """The causes that took any time."""
    parts: dict[str, int] = msgspec.structs.asdict(result_of(trace).accounts.idle_ns)
    return {cause: length for cause, length in parts.items() if length}


def busy(accounts: Accounts) -> tuple[int, int, int, int]:
    parts = accounts.busy_ns
    return parts.compute, parts.copy, parts.both, parts.comm


class Program(TraceBuilder):
    """Entering and leaving takes no time, so that what is planted is all there is."""

    def __init__(self, *, wake_us: float = 0) -> None:
        super().__init__(enter_us=0, wake_us=wake_us)

    def start(self) -> None:
        """Two kernels: the window begins with the first call, and the device with the first op 7 µs later."""
        self.launch("gemm", 100)
        self.launch("gemm", 100)

    def delay_last(self, us: int) -> None:
        """The last kernel starts so much later, for no reason that the file shows."""
        [event for event in self.events if event["cat"] == "kernel"][-1]["ts"] += us * 1_000


def with_first(**more: int) -> dict[str, int]:
    """These times, and those until the first kernel starts: its launch takes 5 µs, and it starts 2 later."""
    return more | {"launch": 5_000 + more.get("launch", 0), "latency": 2_000 + more.get("latency", 0)}


def test_work_that_is_queued_leaves_no_idle_time() -> None:
    trace = Program()
    trace.start()
    assert idle(trace) == with_first()


def test_sync_is_all_the_time_after_a_wait_until_the_device_works_again() -> None:
    trace = Program()
    trace.start()
    trace.sync()
    trace.work(20)
    trace.launch("gemm", 100)
    assert idle(trace) == with_first(sync=27_000)


def test_a_wait_costs_no_more_than_it_took_and_the_rest_is_what_the_host_did() -> None:
    """The wait begins with the end of its op and takes 1 µs; then the host dispatches for 80."""
    trace = Program()
    trace.launch("gemm", 3)
    trace.sync()
    trace.work(80)
    trace.launch("gemm", 100)
    took = next(int(event["dur"]) for event in trace.events if "Synchronize" in str(event["name"]))
    assert took < 10_000
    parts = idle(trace)
    assert parts["sync"] == took
    assert parts["launch"] == 5_000 + 85_000 - took


def test_time_in_python_after_a_wait_is_pythons() -> None:
    trace = Program()
    trace.start()
    trace.sync()
    with trace.op("aten::relu"):
        trace.work(20)
    trace.work(1_000)
    with trace.op("aten::mm"):
        trace.launch("gemm", 100)
    assert idle(trace) == with_first(sync=25_000, python=1_000_000, latency=2_000)


def test_sync_is_a_wait_that_returns_microseconds_before_its_op_ends() -> None:
    """The clocks are 17.5 µs apart."""
    trace = Program()
    trace.start()
    trace.sync()
    trace.work(20)
    trace.launch("gemm", 100)
    for event in trace.events:
        if event["cat"] == "kernel":
            event["ts"] += 17_500
    assert idle(trace)["sync"] == 27_000


def test_launch_is_dispatching_slower_than_the_device_works() -> None:
    """A kernel of 10 µs every 45."""
    trace = Program()
    for _ in range(4):
        with trace.op("aten::relu"):
            trace.work(40)
            trace.launch("relu", 10)
    assert idle(trace) == with_first(launch=40_000 + 3 * 33_000, latency=3 * 2_000)


def test_python_is_the_host_at_work_without_an_operator_for_100_us_or_more() -> None:
    """The device is dry at 207 µs; the host works from 10 to 1,010 and the next kernel starts at 1,017."""
    trace = Program()
    trace.start()
    trace.work(1_000)
    with trace.op("aten::mm"):
        trace.launch("gemm", 100)
    assert idle(trace) == with_first(python=808_000, latency=2_000)


def test_without_the_hosts_side_no_time_is_called_pythons() -> None:
    """ProfilerActivity.CUDA alone records calls, so there is no telling that no operator ran."""
    trace = Program()
    trace.start()
    trace.work(1_000)
    trace.launch("gemm", 100)
    assert idle(trace) == with_first(launch=808_000, latency=2_000)


def test_an_operator_of_the_host_alone_is_python_too() -> None:
    """It dispatches nothing: a CPU operator."""
    trace = Program()
    trace.start()
    with trace.op("aten::sort"):
        trace.work(1_000)
    trace.launch("gemm", 100)
    assert idle(trace) == with_first(python=808_000, latency=2_000)


def test_an_operator_that_dispatches_is_launch() -> None:
    trace = Program()
    trace.start()
    with trace.op("aten::mm"):
        trace.work(900)
        trace.launch("gemm", 100)
    assert idle(trace) == with_first(launch=708_000, latency=2_000)


def test_input_is_waiting_for_the_data_loader() -> None:
    trace = Program()
    trace.start()
    trace.next_batch(1_000)
    trace.launch("gemm", 100)
    assert idle(trace) == with_first(input=810_000)


def test_allocator_is_the_time_in_cuda_malloc() -> None:
    trace = Program()
    trace.start()
    trace.call("cudaMalloc", 1_000)
    trace.launch("gemm", 100)
    assert idle(trace) == with_first(allocator=810_000)


def test_startup_is_loading_modules() -> None:
    trace = Program()
    trace.start()
    trace.call("cuModuleLoadData", 1_000, category="cuda_driver")
    trace.launch("gemm", 100)
    assert idle(trace) == with_first(startup=810_000)


def test_comm_is_the_host_in_a_collective() -> None:
    trace = Program()
    trace.start()
    with trace.op("c10d::allreduce_"):
        trace.work(900)
        trace.launch("gemm", 100)
    assert idle(trace) == with_first(comm=710_000)


def test_copy_is_the_time_around_a_copy_that_blocks() -> None:
    """The upload runs 207-307 µs, and its call blocks for as long; then 20 µs of work and 7 until the next kernel."""
    trace = Program()
    trace.start()
    with trace.op("aten::to"):
        trace.copy("HtoD", 100, memory="Pageable")
    trace.work(20)
    trace.launch("gemm", 100)
    assert idle(trace) == with_first(copy=27_000)


def test_event_is_a_stream_held_by_another() -> None:
    """The second stream's kernel is launched while the first's runs, and starts 30 µs after its event."""
    trace = Program(wake_us=30)
    trace.start()
    trace.stream_wait(trace.record(stream=7), stream=20)
    trace.launch("gemm", 100, stream=20)
    assert idle(trace) == with_first(event=30_000)


def test_a_wait_for_an_event_holds_one_launch_and_not_those_behind_it() -> None:
    """Between the kernels of the graph behind it there is latency."""
    trace = Program(wake_us=30)
    trace.start()
    trace.stream_wait(trace.record(stream=7), stream=20)
    trace.launch("gemm", 100, stream=20)
    trace.graph([50, 50], gap_us=4, stream=20)
    assert idle(trace) == with_first(event=30_000, latency=4_000)


def test_latency_is_a_gap_before_an_op_that_was_queued() -> None:
    """A graph's kernels follow each other with gaps of 3 µs."""
    trace = Program()
    trace.graph([50, 50, 50], gap_us=3)
    assert idle(trace) == with_first(latency=6_000)


def test_latency_is_what_the_device_does_with_a_launch_that_it_has() -> None:
    """The second kernel starts 8 ms after its launch has returned, though nothing holds it."""
    trace = Program()
    trace.launch("gemm", 100)
    trace.work(150)
    trace.launch("gemm", 100)
    trace.delay_last(8_000)
    assert idle(trace) == with_first(launch=53_000, latency=8_002_000)


def test_latency_is_not_the_waits_either() -> None:
    trace = Program()
    trace.start()
    trace.sync()
    trace.work(20)
    trace.launch("gemm", 100)
    trace.delay_last(8_000)
    assert idle(trace) == with_first(sync=25_000, latency=8_002_000)


def test_latency_is_the_first_gaps_too_once_the_launch_has_returned() -> None:
    trace = Program()
    trace.launch("gemm", 100)
    trace.delay_last(900)  # a ms later, the device would have had work from before the recording
    assert idle(trace) == with_first(latency=900_000)


def test_unknown_is_a_gap_before_an_op_whose_launch_is_not_in_the_file() -> None:
    trace = Program()
    trace.start()
    trace.sync()
    trace.launch("gemm", 100)
    trace.events.remove([event for event in trace.events if event["name"] == "cudaLaunchKernel"][-1])
    assert idle(trace) == with_first(unknown=7_000)


def test_unknown_is_what_the_device_does_with_a_graph_whose_kernels_are_not_in_the_file() -> None:
    """Its launch returns at 110 µs, 3 after the device is dry. The next one starts at 517."""
    trace = Program()
    trace.launch("gemm", 100)
    trace.work(100)
    trace.graph([400])
    trace.launch("gemm", 100)
    trace.events.remove([event for event in trace.events if event["cat"] == "kernel"][1])
    figures = idle(trace)
    assert figures.pop("unknown") + figures.pop("launch") - 5_000 == 405_000
    assert figures == {"latency": 2_000}


def test_unknown_or_python_is_the_time_after_the_last_op_and_never_launch() -> None:
    """The step goes on for 500 µs after its last kernel, and no other follows."""
    trace = Program()
    with trace.step():
        trace.launch("gemm", 100)
        trace.work(600)
        with trace.op("aten::view"):
            trace.work(10)
    figures = idle(trace)
    assert figures["launch"] <= 5_000 + 2_000
    assert figures["python"] > 490_000


def test_every_cause_has_a_program_above() -> None:
    planted = {name.split("_")[1] for name in globals() if name.startswith("test_")}
    assert set(IDLE_CAUSES) <= planted


def test_a_wait_on_autograds_thread_counts_as_one_on_the_main_thread_does() -> None:
    trace = Program()
    trace.start()
    with trace.on_thread(AUTOGRAD):
        trace.launch("gemm", 100)
        trace.sync()
        trace.work(20)
        trace.launch("gemm", 100)
    assert idle(trace)["sync"] == 27_000


def test_a_thread_that_launches_nothing_excuses_nothing() -> None:
    """It waits for the device all along; the device waits for the main thread."""
    trace = Program()
    trace.start()
    with trace.on_thread(900, wait=False):
        trace.sync()
    trace.work(297)
    with trace.op("aten::mm"):
        trace.work(700)
        trace.launch("gemm", 100)
    assert "sync" not in idle(trace)


def test_time_is_busy_with_computation_copies_both_or_collectives() -> None:
    """Kernel 7-107 µs; a copy beside it 12-62; a collective 107-157; a copy 157-177."""
    trace = Program()
    trace.launch("gemm", 100)
    trace.copy("HtoD", 50, stream=20)
    trace.launch("ncclDevKernel_AllReduce", 50)
    trace.copy("DtoH", 20)
    result = result_of(trace)
    assert busy(result.accounts) == (50_000, 20_000, 50_000, 50_000)
    assert result.accounts.wall_ns == 177_000


def test_memsets_are_computation() -> None:
    trace = Program()
    trace.memset(10)
    assert busy(result_of(trace).accounts) == (10_000, 0, 0, 0)


class TestSeveralDevices:
    """One kernel each, 7-107 µs on the first and 12-212 on the second."""

    @pytest.fixture
    def trace(self) -> TraceBuilder:
        trace = TraceBuilder(devices=("first", "second"))
        trace.launch("gemm", 100, device=0)
        trace.launch("gemm", 200, device=1)
        return trace

    def test_taken_together_they_are_busy_when_any_is(self, trace: TraceBuilder) -> None:
        result = result_of(trace)
        assert busy(result.accounts) == (205_000, 0, 0, 0)

    def test_each_has_its_own_accounts_over_the_same_window(self, trace: TraceBuilder) -> None:
        first, second = result_of(trace).by_device
        assert (first.name, second.name) == ("first", "second")
        assert (busy(first)[0], busy(second)[0]) == (100_000, 200_000)
        assert first.wall_ns == second.wall_ns == 212_000

    def test_one_that_is_done_while_others_work_waits_for_them(self, trace: TraceBuilder) -> None:
        first, second = result_of(trace).by_device
        assert first.idle_ns.event == 105_000
        assert second.idle_ns.event == 0


def test_of_several_allocations_the_longest_is_the_culprit() -> None:
    trace = Program()
    trace.start()
    for us in (300, 500, 400):
        trace.call("cudaMalloc", us)
    trace.launch("gemm", 10)
    run = analyse(trace.timeline())
    (culprit,) = run.gaps.culprit[run.gaps.cause == IDLE_CAUSES.index("allocator")]
    host = run.timeline.host
    assert host.end[culprit] - host.start[culprit] == 500_000


def test_the_culprit_of_a_wait_is_the_wait_and_of_late_dispatch_the_launch() -> None:
    trace = Program()
    trace.start()
    trace.sync()
    trace.launch("relu", 10)
    trace.work(30)
    trace.launch("relu", 10)
    run = analyse(trace.timeline())
    names = [run.timeline.text(int(run.timeline.host.name[row])) for row in run.gaps.culprit]
    assert names == ["cudaLaunchKernel"] * 2 + ["cudaStreamSynchronize"] + ["cudaLaunchKernel"] * 2
