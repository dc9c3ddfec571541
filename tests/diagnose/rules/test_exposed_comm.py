"""Collectives with no computation beside them."""

from __future__ import annotations

from findings import found, only, place, result_of
from traces import TraceBuilder


def reducing(*, beside: bool) -> TraceBuilder:
    """Three times a collective of 200 µs, in line with the computation or beside it."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        for _ in range(3):
            with trace.op("aten::mm"):
                trace.launch("gemm", 300)
            with trace.op("nccl:all_reduce"):
                trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200, stream=20 if beside else 7)
    return trace


def test_collectives_in_line_are_exposed_for_their_whole_length() -> None:
    finding = only(reducing(beside=False), "exposed-comm")
    assert place(finding) == ("train.py", 12, "train")
    assert (finding.count, finding.exposed_ns, finding.wait_ns) == (3, 600_000, 0)
    assert "look for a slow rank (unstall fleet)" in finding.fix


def test_beside_computation_they_are_not() -> None:
    assert found(reducing(beside=True), "exposed-comm") == []


def test_only_the_part_with_nothing_beside_it_counts() -> None:
    """A collective of 500 µs, and for 100 of them a kernel."""
    trace = TraceBuilder(enter_us=0)
    with trace.frame("train.py", 12, "train"):
        with trace.op("nccl:all_reduce"):
            trace.launch("ncclKernel_AllReduce_RING", 500, stream=20)
        trace.launch("gemm", 100)
    assert only(trace, "exposed-comm").exposed_ns == 400_000


def test_the_accounts_keep_them_apart_from_computation() -> None:
    busy = result_of(reducing(beside=False)).accounts.busy_ns
    assert (busy.compute, busy.comm) == (900_000, 600_000)


def test_beside_computation_they_are_computation_time() -> None:
    """900 µs of kernels back to back, and the last collective beside them but for its end."""
    busy = result_of(reducing(beside=True)).accounts.busy_ns
    assert (busy.compute, busy.comm) == (900_000, 0)


def test_computation_on_another_device_hides_nothing() -> None:
    """On device 0 a collective of 200 µs alone, beside a kernel of 1 ms on device 1."""
    trace = TraceBuilder(devices=("first", "second"))
    with trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 1_000, device=1)
        with trace.op("nccl:all_reduce"):
            trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200, device=0)
    assert only(trace, "exposed-comm").exposed_ns == 200_000


def test_the_two_sides_of_one_collective_count_once() -> None:
    """They start 5 µs apart, as they are launched, and take 200 µs each."""
    trace = TraceBuilder(devices=("first", "second"))
    with trace.frame("train.py", 12, "train"), trace.op("nccl:all_reduce"):
        for device in (0, 1):
            trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200, device=device)
    finding = only(trace, "exposed-comm")
    assert (finding.count, finding.exposed_ns) == (2, 205_000)


def test_of_a_graph_only_the_collectives_count() -> None:
    """One launch of a kernel of 300 µs and, 1 µs later, of a collective of 200."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.graph([300, 200])
    (collective,) = (event for event in trace.events if event["name"] == "graph_kernel_1")
    collective["name"] = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    finding = only(trace, "exposed-comm")
    assert (finding.count, finding.exposed_ns) == (1, 200_000)
    assert place(finding) == ("train.py", 12, "train")


def test_it_tells_kind_group_size_and_bandwidth() -> None:
    """Two all-reduces of 25 MiB among 8 ranks, 200 µs each."""
    told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 25 << 18, "Out msg nelems": 25 << 18}
    told |= {"Group size": 8, "Process Group Name": "0", "Process Group Description": "default_pg"}
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        for _ in range(2):
            with trace.op("c10d::allreduce_"), trace.op("record_param_comms", more=told):
                trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200)
    saw = only(trace, "exposed-comm").saw
    assert saw.endswith(
        ": 2 all-reduces among 8 ranks (default_pg) of 25.0 MiB on average, 400 µs, alone for 400 µs, "
        "131 GB/s (229 on the bus)"
    )


def test_of_small_ones_it_says_nothing_of_bandwidth() -> None:
    told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1_000, "Out msg nelems": 1_000}
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.op("record_param_comms", more=told | {"Group size": 8}):
        trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200)
    assert only(trace, "exposed-comm").saw.endswith(
        ": 1 all-reduce among 8 ranks of 3.91 KiB, 200 µs, alone for 200 µs"
    )


def test_without_sizes_it_says_nothing_of_bandwidth() -> None:
    assert "GB/s" not in only(reducing(beside=False), "exposed-comm").saw


def test_how_long_collectives_were_under_way_is_told_whatever_runs_beside_them() -> None:
    """Three times 200 µs, each beside a kernel."""
    accounts = result_of(reducing(beside=True)).accounts
    assert (accounts.comm_ns, accounts.busy_ns.comm) == (600_000, 0)
