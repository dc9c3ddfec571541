"""A table of the names of kernels that communicate with other GPUs. Each row is a pattern for the
names of a library's kernels, and the kind of collective that such a kernel runs.

To support another library, add a row. The pattern must match the whole name of the function with
its namespaces. For example, the name of the kernel `void deep_ep::intranode::combine<__nv_bfloat16,
8>(int4*)` is `deep_ep::intranode::combine`. If several rows match, the row that comes first in the
table counts. The kind LOCAL is for a library's kernels that neither communicate nor wait for
another GPU.

Some kernels compute a matrix product and send it to other GPUs. Such a kernel counts as
computation, because it mostly computes. Only rows of the kind LOCAL may match the name of such a
kernel. Kernels that do an all-reduce and then a norm or a quantisation count as communication.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class Kind(Enum):
    """The kinds of collectives. The value of each kind is the usual name of the collective."""

    ALL_REDUCE = "all-reduce"
    FUSED_ALL_REDUCE = "fused all-reduce"  # and a norm, or a quantisation
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    DISPATCH = "dispatch"  # of tokens to the ranks of their experts
    COMBINE = "combine"  # and back
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND_RECEIVE = "send or receive"
    BARRIER = "barrier"
    OTHER = "collective"
    LOCAL = "local"  # no communication


class _Row(NamedTuple):
    library: str
    names: str  # a pattern for the whole name of the function, in any case of letters, below any namespaces
    kind: Kind | None = None  # None: the function's name says it (`_WORDS`)


# Names as in the libraries' sources of 2021 to 2026. Rows of LOCAL come first.
_ROWS = (
    _Row("any", r"cutlass::\w+|(?:\w+::)*\w*(?:gemm|matmul|attention|attn_fwd|fmha)\w*", Kind.LOCAL),
    _Row("torch", r"at::native::[\w:]*|(?:c10d::)?checkForNaN|triton_\w*", Kind.LOCAL),
    _Row("NCCL", r"oneRankReduce", Kind.LOCAL),  # a group of one rank has nobody to send to
    _Row("MSCCL++", r"(?:\w+::)*fp8NvlsSupportProbeKernel", Kind.LOCAL),
    _Row("NVSHMEM", r"nvshmemi_(?:init_array|team_index|team_mapping)_kernel", Kind.LOCAL),
    # cached_notify and clean_low_latency_buffer wait for all ranks; notify_dispatch tells them how much will come.
    _Row(
        "DeepEP",
        r"(?:\w+::)*(?:internode|internode_ll|intranode)::(?:\w*notify\w*|barrier|clean_low_latency_buffer)",
        Kind.BARRIER,
    ),
    _Row("DeepEP", r"(?:\w+::)*(?:internode|internode_ll|intranode)::(?:dispatch|combine)"),
    _Row("DeepEP", r"(?:\w+::)*elastic::\w*epilogue\w*", Kind.LOCAL),  # copies within the device what has arrived
    _Row("DeepEP", r"(?:\w+::)*deep_ep::elastic::(?:hybrid_)?(?:dispatch|combine|barrier|engram|pp_)\w*"),
    _Row("NCCL, RCCL, MSCCL, NVSHMEM", r"(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)\w*(?:::\w+)*"),
    _Row("NVSHMEM", r"(?:alltoall|barrier|broadcast|fcollect|rdxn|reducescatter|sync)_on_stream_kernel\w*"),
    _Row("torch", r"multimem_\w+"),  # CUDASymmetricMemoryOps.cu
    _Row("torch", r"(?:\w+::)*symmetric_memory::(?:\w*barrier_kernel|(?:put|wait)_signal_kernel)"),
    _Row("torch", r"(?:\w+::)*hybridCubeAllReduceKernel"),
    _Row("vLLM, SGLang, AITER, FlashInfer, MORI", r"(?:\w+::)*cross_device_reduce_\w+", Kind.ALL_REDUCE),
    _Row("AITER", r"aiter::(?:allgather_(?:naive|vec|lastdim)|reduce_scatter_(?:split|cross_device)\w*)"),
    _Row("AITER", r"aiter::(?:\w+_)?allreduce_?\w*"),
    _Row("AITER", r"aiter::ar_(?:\w+_)?gfx\w+", Kind.ALL_REDUCE),
    _Row("AITER", r"aiter::ag_(?:\w+_)?gfx\w+", Kind.ALL_GATHER),
    _Row("AITER", r"aiter::rs_(?:\w+_)?gfx\w+", Kind.REDUCE_SCATTER),
    _Row("quick all-reduce", r"(?:\w+::)*quickreduce::\w*allreduce\w*"),
    # TensorRT-LLM's, torch's, FlashInfer's, LMDeploy's and others'.
    _Row("many", r"(?:\w+::)*\w*(?:one|two)_?shot_?all_?reduce\w*"),
    _Row("TensorRT-LLM, FlashInfer", r"(?:\w+::)*\w*allreduce_fusion_kernel\w*", Kind.FUSED_ALL_REDUCE),
    # It polls a buffer that the other ranks write into: the second half of an all-reduce.
    _Row("TensorRT-LLM, FlashInfer", r"(?:\w+::)*rmsNormLamport", Kind.FUSED_ALL_REDUCE),
    _Row("TensorRT-LLM, FlashInfer", r"(?:\w+::)*moeA2A(?:Dispatch|Combine)Kernel"),
    _Row("TensorRT-LLM, FlashInfer", r"(?:\w+::)*(?:moeAllToAllKernel|helixAllToAllKernel|allToAllMetadataDevice)"),
    _Row("FlashInfer", r"flashinfer::mixed_comm::\w+_kernel"),
    _Row("FlashInfer", r"flashinfer::comm::pcie_ipc::\w+", Kind.ALL_REDUCE),
    _Row("FlashInfer", r"flashinfer::comm::ulysses::\w+", Kind.ALL_TO_ALL),
    _Row("LMDeploy", r"turbomind::comm::\w+"),
    _Row("TransformerEngine", r"userbuffers_fp16_sum_inplace_gpu_(?:rr|rw|mc)_rs\w*", Kind.REDUCE_SCATTER),
    _Row("TransformerEngine", r"userbuffers_fp16_sum_inplace_gpu_(?:rr|rw|mc)_ag", Kind.ALL_GATHER),
    _Row("TransformerEngine", r"userbuffers_fp16_sum_inplace_gpu_(?:rr|rw|mc)", Kind.ALL_REDUCE),
    _Row("TransformerEngine", r"kuserbuffers_(?:push|pull)\w+", Kind.SEND_RECEIVE),
    _Row("MSCCL++", r"mscclpp::(?:\w+::)*\w+"),
    _Row("MORI", r"(?:\w+::)*Ep(?:DispatchCopyToStaging|CombineAll)\w*", Kind.LOCAL),
    _Row("MORI", r"(?:\w+::)*Ep(?:Dispatch|Combine)(?:Intra|Inter|LowLatency|Sync)\w*"),
    _Row("MORI", r"mori::collective::\w+|OneShot(?:All2all|AllGather|Broadcast)Sdma\w+|mori_shmem_barrier\w*"),
    _Row("Flux", r"bytedance::flux::(?:all2all\w*|a2a_single_kernel\w*|ag_a2a_mode_kernel|CudaIpcBarrierAll\w*)"),
    _Row("Flux", r"bytedance::flux::(?:pre|post)_attn_\w*(?:a2a|all2all)\w*", Kind.ALL_TO_ALL),
    _Row("Triton-distributed", r"kernel_all2all_(?:push|pull)_\w+|barrier_all_intra_node_kernel|mxshmem_\w+"),
    # Triton kernels over symmetric memory.
    _Row("torchao, torchtitan", r"(?!\w*(?:pack|permute|offset|split|order))\w*_all_to_all_(?:\w+_)?kernel"),
    _Row("oneCCL", r"oneccl_\w+|(?:Allreduce|Allgatherv?|ReduceScatter)_?(?:small|medium|large)_?\w*kernel\w*"),
)
# Types that only kernels which communicate take: NCCL's device API, which DeepEP and torch use, and MSCCL++'s channels.
_PARAMETERS = re.compile(r"[(<, ](?:ncclDevComm\b|mscclpp::)")
# What the words in a function's name say, also in c10d's names of operations: "_allgather_base", "all_to_allv".
_WORDS = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"all_?reduce\w*(?:fusion|norm|quant|_mhc)|norm\w*all_?reduce", Kind.FUSED_ALL_REDUCE),
        (r"all_?reduce|rdxn|nvshmemi_reduce", Kind.ALL_REDUCE),
        (r"all_?gather|fcollect|multimem_st", Kind.ALL_GATHER),
        (r"reduce_?scatter", Kind.REDUCE_SCATTER),
        (r"all_?to_?all|all_?2_?all|a2a_single|ag_a2a|exchangeSplit", Kind.ALL_TO_ALL),
        (r"barrier|sync_on_stream|notify", Kind.BARRIER),
        (r"dispatch", Kind.DISPATCH),
        (r"combine", Kind.COMBINE),
        (r"broadcast", Kind.BROADCAST),
        (r"send|recv|signal|pp_|putmem|getmem|_rma_", Kind.SEND_RECEIVE),
        (r"(?:^|_)reduce|ncclReduce", Kind.REDUCE),
        (r"(?:^|_)gather", Kind.GATHER),
        (r"(?:^|_)scatter", Kind.SCATTER),
    )
)
_ANY_ROW = re.compile("|".join(f"(?P<row{i}>{row.names})" for i, row in enumerate(_ROWS)), re.IGNORECASE)
_LONGEST = 4096  # characters of a name that are looked at
_BEFORE = re.compile(r"(?:(?:void|static|__global__|inline)\s+)+")
_UNNAMED = re.compile(r"\(anonymous namespace\)::|_GLOBAL__N_\w*::|<unnamed>::")
_PATH = re.compile(r"[\w:$]*")
_MANGLED = re.compile(r"_ZN?K?(?=\d)")
_LENGTH = re.compile(r"\d{1,4}")


@lru_cache(8192)
def kind_of_kernel(name: str) -> Kind | None:
    """Returns the kind of collective that the kernel with the name `name` runs.

    Returns LOCAL if the kernel is known not to communicate. Returns None if the kernel's name is
    not in the table of names in this module.
    """
    text = _UNNAMED.sub("", name[:_LONGEST])
    function = _function(text)
    found = _ANY_ROW.fullmatch(function)
    if found and found.lastgroup:
        row = _ROWS[int(found.lastgroup.removeprefix("row"))]
        return row.kind or kind_of_operation(function.rpartition("::")[2])
    if _PARAMETERS.search(text, len(function)):
        return kind_of_operation(function.rpartition("::")[2])
    return None


def kind_of_operation(name: str) -> Kind:
    """Returns the kind of collective that an operation named `name` runs. The name is one such as
    `allreduce_coalesced` or `send`. Returns OTHER if the name says nothing about the kind.
    """
    return next((kind for pattern, kind in _WORDS if pattern.search(name, 0, _LONGEST)), Kind.OTHER)


def _function(text: str) -> str:
    """Returns the name of a kernel's function with its namespaces, without return type, template
    arguments and parameters. `text` is the kernel's full name.
    """
    if start := _MANGLED.match(text):
        return "::".join(_mangled_parts(text, start.end()))
    start = _BEFORE.match(text)
    found = _PATH.match(text, start.end() if start else 0)
    return found[0] if found else ""


def _mangled_parts(text: str, at: int) -> list[str]:
    """Returns the parts of the name in a mangled C++ symbol (Itanium ABI), such as `_ZN3foo3barE`.

    In the symbol, each part comes after its length, which is written in digits. `at` is the position of the first
    length.
    """
    parts: list[str] = []
    while length := _LENGTH.match(text, at):
        at = length.end() + int(length[0])
        part = text[length.end() : at]
        if not part.startswith("_GLOBAL__N_"):
            parts.append(part)
    return parts
