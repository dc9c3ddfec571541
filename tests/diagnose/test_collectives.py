"""Kernels that communicate are told by their names, and by what torch says of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import Event, TraceBuilder

from unstall.diagnose.communication import Alike, alike
from unstall.locate.collectives import Kind, kind_of_kernel, kind_of_operation
from unstall.locate.kinds import is_communication
from unstall.read import load
from unstall.timeline.columns import Timeline


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Kind.ALL_REDUCE),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", Kind.ALL_REDUCE),
        ("ncclSymkDevKernel_AllGather_LL", Kind.ALL_GATHER),
        ("ncclReduceScatterRingLLKernel_sum_f32(ncclColl)", Kind.REDUCE_SCATTER),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Kind.BROADCAST),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Kind.REDUCE),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", Kind.SEND_RECEIVE),
        ("ncclDevKernel_Generic_1(ncclDevComm*, channelMasks, ncclWork*)", Kind.OTHER),
        ("mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)", Kind.OTHER),
        ("void nvshmemi_reduce_kernel<float, (rdxn_ops)3>(int, int)", Kind.ALL_REDUCE),
        ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)2>(int, int)", Kind.BARRIER),
        ("void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*, float*)", Kind.COMBINE),
        ("void dpsk::ep::internode::cached_notify<false>(int, int)", Kind.BARRIER),
        ("void deep_ep::intranode::dispatch<8, 768>(int4*, float*)", Kind.DISPATCH),
        ("deep_ep::internode_ll::clean_low_latency_buffer(int*, int)", Kind.BARRIER),
        ("void deep_ep::elastic::hybrid_combine_impl<true>(__nv_bfloat16*, ncclDevComm)", Kind.COMBINE),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", Kind.ALL_REDUCE),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 8>(float**)", Kind.ALL_REDUCE),
        ("c10d::symmetric_memory::barrier_kernel(unsigned int**, int)", Kind.BARRIER),
        ("void c10d::nccl_extension::reduce_scatter_offset_kernel<float, true>(int)", Kind.REDUCE_SCATTER),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)", Kind.ALL_REDUCE),
        ("_ZN4vllm26cross_device_reduce_2stageI13__nv_bfloat16Li4EEEvPNS_8RankDataE", Kind.ALL_REDUCE),
        (
            "void aiter::cross_device_reduce_1stage_naive<__hip_bfloat16, 8>(int) [clone .kd]",
            Kind.ALL_REDUCE,
        ),
        ("void aiter::allreduce_fusion_kernel_1stage<x>(int)", Kind.FUSED_ALL_REDUCE),
        ("void quickreduce::allreduce_prototype_twoshot<x>(int)", Kind.ALL_REDUCE),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(int)", Kind.ALL_REDUCE),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>(int)",
            Kind.FUSED_ALL_REDUCE,
        ),
        ("void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<x>(int)", Kind.DISPATCH),
        ("void userbuffers_fp16_sum_inplace_gpu_mc_rs_oop<8>(int)", Kind.REDUCE_SCATTER),
        ("void allreduce7<__half>(__half*, mscclpp::DeviceHandle<mscclpp::MemoryChannel>*)", Kind.ALL_REDUCE),
        ("_mxfp8_all_to_all_expert_major_kernel", Kind.ALL_TO_ALL),
        ("void my_exchange<float>(ncclDevComm, ncclWindow_vidmem*)", Kind.OTHER),
    ],
)
def test_a_name_tells_what_a_collective_does(name: str, kind: Kind) -> None:
    assert kind_of_kernel(name) is kind


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
        "BroadcastGradientArgs",
        "all_reduce",
        "prepare_for_nccl",
        "block_all_reduce_sum_f32_f32_kernel(float*, float*, int)",  # within one GPU
        "triton_poi_fused_all_reduce_mul_0",  # Inductor names a kernel by the operators around it
        "triton_red_fused_all_gather_into_tensor_1",
        "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)",  # counts tokens on its own GPU
        "void deep_ep::elastic::dispatch_copy_epilogue_impl<true>(void*)",
        "void tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel(int*)",
        "void aiter::local_device_load_rmsnorm<__hip_bfloat16>(int)",
        "void cutlass::device_kernel<flux::GemmReduceScatter<x>>(ncclDevComm)",
        "kernel_fused_gemm_allreduce",
        "void flash::flash_fwd_splitkv_combine_kernel<x>(int)",
        "void c10d::checkForNaN<float>(float*, unsigned long)",
        "void moe::dispatch<8>(int*)",
        "void oneRankReduce<FuncPreMulSum<float>>(void*, void*, unsigned long)",
        "_precompute_combine_offsets_kernel",
        "_permute_for_all_to_all_kernel",
        "",
    ],
)
def test_other_names_are_no_collectives(name: str) -> None:
    assert kind_of_kernel(name) in (None, Kind.LOCAL)


@given(st.text(alphabet="abn_:<(Z0 19c", max_size=60))
def test_any_text_is_a_name(name: str) -> None:
    assert kind_of_kernel(name) in (None, *Kind)


def test_a_long_name_takes_no_longer_than_its_length() -> None:
    assert kind_of_kernel("a::" * 100_000) is None
    assert kind_of_kernel("allreduce" * 100_000) is None


def test_torch_names_operations_too() -> None:
    names = ("allreduce_coalesced", "_allgather_base", "reduce_scatter_tensor_coalesced", "all_to_allv", "send", "wait")
    assert [kind_of_operation(name).value for name in names] == [
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "send or receive",
        "collective",
    ]


TOLD: Event = {
    "Collective name": "allreduce",
    "dtype": "BFloat16",
    "In msg nelems": 500_000,
    "Out msg nelems": 500_000,
    "Group size": 4,
    "Process Group Name": "7",
    "Process Group Description": "mesh_tp",
}


def told(kernel: str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", **fields: object) -> TraceBuilder:
    """A collective of 10 µs, of which torch says this."""
    trace = TraceBuilder()
    names = {"name": "Collective name", "sent": "In msg nelems", "received": "Out msg nelems", "ranks": "Group size"}
    names |= {"group": "Process Group Name", "described": "Process Group Description"}
    more = TOLD | {names.get(key, key): value for key, value in fields.items()}
    with trace.op("c10d::allreduce_"), trace.op("record_param_comms", more=more):
        trace.launch(kernel, 10)
    return trace


def of(timeline: Timeline) -> Alike:
    (one,) = alike(timeline, np.flatnonzero(is_communication(timeline)))
    return one


def test_size_group_and_bandwidth_are_those_that_torch_recorded() -> None:
    one = of(told().timeline())
    assert (one.kind, one.group, one.ranks, one.bytes) == (Kind.ALL_REDUCE, "mesh_tp", 4, 1_000_000)
    assert one.bandwidth == pytest.approx(100)  # GB/s: 1 MB in 10 µs
    assert one.bus_bandwidth == pytest.approx(150)  # 2 (n - 1) / n


def test_the_size_of_a_gather_is_what_all_ranks_send() -> None:
    one = of(told(name="_allgather_base", sent=1_000, received=4_000, dtype="Float").timeline())
    assert (one.kind, one.bytes) == (Kind.ALL_GATHER, 16_000)
    assert one.bus_bandwidth == pytest.approx(16_000 / 10_000 * 3 / 4)


def test_a_group_without_a_description_has_its_name() -> None:
    assert of(told(described="undefined").timeline()).group == "7"


@pytest.mark.parametrize("field", [{"sent": 0}, {"dtype": "Mystery"}, {"sent": "many"}, {"sent": -5}, {"sent": 2**62}])
def test_without_a_size_there_is_no_bandwidth(field: Event) -> None:
    one = of(told(**field).timeline())
    assert (one.bytes, one.bandwidth, one.bus_bandwidth) == (-1, None, None)


def test_a_kernel_of_any_name_that_the_call_launches_is_a_collective() -> None:
    timeline = told("my_backend_kernel").timeline()
    assert is_communication(timeline).tolist() == [True]
    assert of(timeline).kind is Kind.ALL_REDUCE


def test_copies_and_checks_of_the_call_are_not() -> None:
    trace = TraceBuilder()
    with trace.op("record_param_comms", more=TOLD):
        with trace.op("aten::copy_"):
            trace.launch("my_copy_kernel")
        trace.launch("void c10d::checkForNaN<float>(float*, unsigned long)")
        trace.copy("DtoD", 5)
        trace.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    assert is_communication(trace.timeline()).tolist() == [False, False, False, True]


def test_a_kernel_says_it_itself_if_its_operator_was_not_recorded() -> None:
    trace = TraceBuilder(operators=False)
    trace.launch("ncclDevKernel_Generic_1", 10)
    trace.events[-1]["args"] |= TOLD
    one = of(trace.timeline())
    assert (one.kind, one.group, one.bytes) == (Kind.ALL_REDUCE, "mesh_tp", 1_000_000)


def test_one_saved_before_has_nothing_told(tmp_path: Path) -> None:
    now, before = tmp_path / "now.timeline", tmp_path / "before.timeline"
    told().timeline().save(now)
    with zipfile.ZipFile(now) as archive, zipfile.ZipFile(before, "w") as older:
        for member in archive.namelist():
            if not member.startswith("collectives."):
                older.writestr(member, archive.read(member))
    assert of(load(before)).group == ""


def test_a_saved_timeline_keeps_what_was_told(tmp_path: Path) -> None:
    path = tmp_path / "run.timeline"
    told().timeline().save(path)
    assert of(load(path)).bus_bandwidth == pytest.approx(150)
