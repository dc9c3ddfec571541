"""The host time of the work inside an operator, from that of its call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.model import HostCosts, Limits
from unstall.virtual.costs.operator_calls import OperatorCall, at_one_pace, host_pace, own_ns
from unstall.virtual.costs.signature import Signature, TensorSpec

HOST = HostCosts(operator=1_000, operator_end=100, launch=3_000, malloc=800, free=200)


def test_what_else_a_call_costs_is_left_out() -> None:
    host = replace(HOST, use=200, few_uses=0)
    assert own_ns({"sort.default": OperatorCall(20_000, launches=2, allocations=3)}, host, 500) == {"sort": 9_900}
    lists = OperatorCall(20_000, launches=2, allocations=3, tensors=6)
    assert own_ns({"_foreach_neg.default": lists}, host, 500) == {"_foreach_neg": 8_700}


def test_the_time_of_a_call_that_waits_for_more_than_one_value_is_not_believed() -> None:
    calls = {
        "isin.default": OperatorCall(300_000, 20, 10, waits=1, waited_ns=3_000),
        "sort.default": OperatorCall(300_000, 2, 3),
    }
    assert own_ns(calls, HOST, 0) == {"sort": 60_000}


def test_a_call_through_torch_ops_takes_longer_than_programs_know() -> None:
    calls = {
        "mm.default": OperatorCall(10_000, 1, 1),
        "mm_backward.default": OperatorCall(10_000, 1, 1, is_bound=False),
    }
    own = own_ns(calls, HOST, 500)
    assert own["mm"] - own["mm_backward"] == 500


def test_the_wait_for_a_value_that_a_call_reads_is_left_out() -> None:
    limits = Limits(launch_latency=3_000, copy_latency=1_500, wake_latency=4_000)
    waits = {"nonzero.default": OperatorCall(40_000, 2, 0, waits=1, waited_ns=2_900)}
    plain = {"nonzero.default": OperatorCall(40_000, 2, 0)}
    host = replace(HOST, copy=2_500)
    assert own_ns(plain, host, 0, limits)["nonzero"] - own_ns(waits, host, 0, limits)["nonzero"] == 6_000 + 2_900


def test_the_fastest_overload_counts_and_no_time_is_negative() -> None:
    calls = {
        "add.Tensor": OperatorCall(9_000, 1, 1),
        "add.Scalar": OperatorCall(8_000, 1, 1),
        "neg.default": OperatorCall(9, 1, 1),
    }
    assert own_ns(calls, HOST, 0) == {"add": 2_900, "neg": 0}


def test_a_write_that_does_not_accumulate_has_the_host_time_of_index() -> None:
    indices = (TensorSpec("int64", (8,), (1,)),)
    x, values = TensorSpec("float32", (64, 4), (4, 1)), TensorSpec("float32", (8, 4), (4, 1))
    adding, plain = (
        Signature("aten::_index_put_impl_", "", (x, indices, values, accumulate, False), (x,))
        for accumulate in (True, False)
    )
    gpu = gpu_named("h200")
    writes, adds = (round(gpu.host_pace * gpu.file.operators_host_ns[name]) for name in ("index", "_index_put_impl_"))
    assert costs_of("h200").cost(plain).host_ns == writes
    assert costs_of("h200").cost(adding).host_ns == adds > 2 * writes


def test_the_pace_of_a_host_is_that_of_most_operators() -> None:
    gpu = gpu_named("h200")
    host, own = gpu.host, gpu.file.operators_host_ns

    def call(name: str, pace: float, is_bound: bool = True, waits: int = 0) -> OperatorCall:
        around = host.operator + host.operator_end + host.launch + host.malloc + host.free
        return OperatorCall(round(pace * (own[name] + around)), 1, 1, is_bound, waits)

    calls = {f"{name}.Tensor": call(name, 0.6) for name in ("mul", "add", "sum", "exp")}
    others = {"cat.default": call("cat", 2.0), "nonzero.default": call("nonzero", 9.0, waits=1)}
    assert host_pace(calls | others, gpu) == pytest.approx(0.6, rel=1e-3)
    with pytest.raises(RuntimeError, match="no operator"):
        host_pace(others | {"cat.default": call("cat", 2.0, is_bound=False)}, gpu)


def test_at_another_pace_the_work_within_is_that_of_the_reference() -> None:
    calls = {"sort.default": OperatorCall(20_000, launches=2, allocations=3)}
    twice = {"sort.default": OperatorCall(40_000, launches=2, allocations=3)}
    assert own_ns(twice, HOST, 500, pace=2.0) == own_ns(calls, HOST, 500)


def test_times_that_were_measured_while_the_host_was_slower_count_less() -> None:
    times = {"add.Tensor": 8_000, "mm.default": 15_000, "exp.default": 7_000}
    references = {"add.Tensor": 7_000.0, "mm.default": 10_500.0, "exp.default": 7_000.0, "failed.default": 20_000.0}
    assert at_one_pace(times, references) == {"add.Tensor": 8_000, "mm.default": 10_000, "exp.default": 7_000}
    assert at_one_pace({}, references) == {}
