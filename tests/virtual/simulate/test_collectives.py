"""When a collective ends on a rank, and what its kernel is called."""

from __future__ import annotations

import pytest
from virtual.simulate.runs import begin

from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.log import LogCode
from unstall.virtual.simulation.collectives import Call, Collective, Group, Meeting

COSTS = costs_of("h200")
GROUP = Group("3", "undefined", 1, (4, 5, 6, 7))
MIB = 1 << 20


MET = Meeting(1000, 5000, 3000)


def collective(*calls: Call, meeting: Meeting = MET) -> Collective:
    return Collective(calls, GROUP, 9, meeting)


def call(name: str, size: int = MIB, *, dtype: str = "float32", reduction: str = "", peer: int = -1) -> Call:
    return Call(name, dtype, reduction, size, size, peer)


def test_a_collective_ends_after_the_last_rank_is_ready() -> None:
    took = COSTS.transfer("AllReduce", MIB, 4).ns
    assert collective(call("allreduce", reduction="sum")).end_ns(COSTS) == 5000 + took


def test_a_message_that_is_sent_waits_for_nobody_and_one_that_is_received_waits_for_its_sender() -> None:
    took = COSTS.transfer("SendRecv", MIB, 4).ns
    assert collective(call("send", peer=2)).end_ns(COSTS) == 1000 + took
    assert collective(call("recv", peer=2)).end_ns(COSTS) == 3000 + took


def test_messages_of_a_batch_share_the_link_in_each_direction() -> None:
    both = collective(call("send", peer=2), call("recv", peer=0), meeting=Meeting(1000, 1000, 1000))
    two = collective(call("recv", peer=2), call("recv", peer=0), meeting=Meeting(1000, 1000, 1000))
    assert both.end_ns(COSTS) == 1000 + COSTS.transfer("SendRecv", MIB, 4).ns
    assert two.end_ns(COSTS) == 1000 + COSTS.transfer("SendRecv", 2 * MIB, 4).ns


def test_a_group_of_one_rank_has_nothing_to_transfer() -> None:
    alone = Collective((call("allreduce", reduction="sum"),), Group("0", "", 0, (4,)), 1, Meeting(1000, 1000, 1000))
    assert alone.end_ns(COSTS) == 1000


def test_a_message_names_the_ranks_of_the_job() -> None:
    assert collective(call("send", peer=3)).peers() == (5, 7)
    assert collective(call("recv", peer=3)).peers() == (7, 5)
    assert collective(call("broadcast")).peers() == (-1, -1)


@pytest.mark.parametrize(
    ("one", "kernel"),
    [
        (call("allreduce", reduction="sum"), "AllReduce_Sum_f32_RING_LL"),
        (call("allreduce", dtype="bfloat16", reduction="avg"), "AllReduce_Sum_bf16_RING_LL"),
        (call("allreduce", dtype="int64", reduction="avg"), "AllReduce_Sum_u64_RING_LL"),
        (call("_reduce_scatter_base", dtype="float16", reduction="max"), "ReduceScatter_Sum_f16_RING_LL"),
        (call("_allgather_base"), "AllGather_RING_LL"),
        (call("send", peer=0), "SendRecv"),
    ],
)
def test_kernels_have_nccl_s_names(one: Call, kernel: str) -> None:
    assert collective(one).kernel(COSTS) == f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"


def test_a_batch_of_different_calls_is_coalesced() -> None:
    assert collective(call("send", peer=0), call("recv", peer=0)).name == "coalesced"
    assert collective(call("allreduce_coalesced"), call("allreduce_coalesced")).name == "allreduce_coalesced"


@pytest.mark.parametrize("busy_ns", [0, 50_000])
def test_a_kernel_begins_when_the_rank_told_the_others_that_it_is_ready(busy_ns: int) -> None:
    log, simulator = begin()
    if busy_ns:
        log.launch(busy_ns)
    log.write(LogCode.COLLECTIVE_CALL)
    ready = simulator.can_start_ns(0, 0)
    number = simulator.collective([call("allreduce", 100)], GROUP, 9, Meeting(ready, ready + 70_000, ready))
    log.write(LogCode.COLLECTIVE, a=number)
    timeline = simulator.timeline()
    device, told = timeline.device, timeline.collectives
    (row,) = told.op.tolist()
    assert (int(device.start[row]), int(device.end[row])) == (ready, ready + 70_000 + 100 * 4)
    assert ready >= busy_ns
    assert int(device.launch[row]) == len(timeline.host) - 1  # the call, not the meeting after it
    assert (timeline.strings[told.name[0]], told.sequence.tolist(), told.ranks.tolist()) == ("allreduce", [9], [4])
