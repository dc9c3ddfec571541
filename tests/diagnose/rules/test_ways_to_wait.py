"""The table of ways to wait, row by row: from operator, frames and call to the rule that names it."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from findings import result_of
from traces import TraceBuilder

from unstall.ways_to_wait import WAYS

ITEM = ("aten::item", "aten::_local_scalar_dense")
TENSOR = "<built-in method tensor of type object at 0x7f00>"
CLIP = "torch/nn/utils/clip_grad.py(180): clip_grad_norm_"
VALIDATE = "torch/distributions/distribution.py(40): __init__"
CASES = [
    # (frames below the user's, operators, the call that waits) → rule
    ([], ITEM, "cudaStreamSynchronize", "sync-item"),
    ([], ("aten::_local_scalar_dense",), "cudaStreamSynchronize", "sync-item"),
    ([], ITEM, "hipStreamSynchronize", "sync-item"),
    ([], ("aten::is_nonzero", *ITEM), "cudaStreamSynchronize", "sync-bool"),
    ([], ("aten::equal",), "cudaStreamSynchronize", "sync-equal"),
    ([], ("aten::allclose", "aten::all", *ITEM), "cudaStreamSynchronize", "sync-equal"),
    ([], ("aten::index", "aten::nonzero"), "cudaStreamSynchronize", "sync-mask"),
    ([], ("aten::index_put_", "aten::_index_put_impl_", "aten::nonzero"), "cudaStreamSynchronize", "sync-mask"),
    ([], ("aten::masked_select",), "cudaStreamSynchronize", "sync-mask"),
    ([], ("aten::nonzero",), "cudaStreamSynchronize", "sync-nonzero"),
    ([], ("aten::where", "aten::nonzero_numpy", "aten::nonzero"), "cudaStreamSynchronize", "sync-nonzero"),
    ([], ("aten::unique_consecutive",), "cudaStreamSynchronize", "sync-shape"),
    ([], ("aten::_unique2",), "cudaStreamSynchronize", "sync-shape"),
    ([], ("aten::repeat_interleave",), "cudaStreamSynchronize", "sync-shape"),
    ([], ("aten::bincount", *ITEM), "cudaStreamSynchronize", "sync-shape"),
    ([], ("aten::linalg_inv", "aten::linalg_inv_ex"), "cudaStreamSynchronize", "sync-linalg"),
    ([], ("aten::linalg_cholesky",), "cudaStreamSynchronize", "sync-linalg"),
    ([], ("aten::to", "aten::_to_copy", "aten::copy_"), "cudaStreamSynchronize", "sync-cpu"),
    ([], ("aten::copy_",), "cudaStreamSynchronize", "sync-cpu"),
    ([], ("aten::index_select",), "cudaStreamSynchronize", "sync-other"),
    ([], ("mine::gather_rows",), "cudaStreamSynchronize", "sync-other"),
    ([], ("nccl:all_reduce",), "cudaStreamSynchronize", "sync-comm"),
    ([], ("c10d::barrier",), "cudaStreamSynchronize", "sync-comm"),
    (["torch/cuda/__init__.py(1085): synchronize"], (), "cudaDeviceSynchronize", "sync-explicit"),
    (["torch/cuda/streams.py(110): synchronize"], (), "cudaStreamSynchronize", "sync-explicit"),
    (["torch/cuda/streams.py(220): synchronize"], (), "cudaEventSynchronize", "sync-explicit"),
    ([], (), "cuCtxSynchronize", "sync-explicit"),
    ([], (), "hipDeviceSynchronize", "sync-explicit"),
    (["torch/_tensor.py(960): __format__"], ITEM, "cudaStreamSynchronize", "sync-print"),
    (["torch/_tensor_str.py(690): _str"], ITEM, "cudaStreamSynchronize", "sync-print"),
    (["<built-in function print>", "torch/_tensor.py(480): __repr__"], ("aten::to",), "cudaMemcpyAsync", "sync-print"),
    ([TENSOR], ("aten::to", "aten::copy_"), "cudaStreamSynchronize", "sync-tensor"),
    ([CLIP], ("aten::is_nonzero", *ITEM), "cudaStreamSynchronize", "sync-clip-grad"),
    ([VALIDATE], ("aten::is_nonzero", *ITEM), "cudaStreamSynchronize", "sync-validate"),
    (
        ["torch/amp/grad_scaler.py(340): _maybe_opt_step", "torch/amp/grad_scaler.py(345): <genexpr>"],
        ITEM,
        "cudaStreamSynchronize",
        "sync-grad-scaler",
    ),
    (["torch/cuda/amp/grad_scaler.py(300): step"], ITEM, "cudaStreamSynchronize", "sync-grad-scaler"),
]


def waiting(frames: list[str], operators: tuple[str, ...], call: str, gpu: str = "NVIDIA H200") -> TraceBuilder:
    trace = TraceBuilder(devices=(gpu,))
    with ExitStack() as stack:
        stack.enter_context(trace.frame("train.py", 12, "train"))
        with trace.op("aten::mm"):
            trace.launch("gemm", 300)
        for frame in frames:
            stack.enter_context(trace.named_frame(frame))
        for operator in operators:
            stack.enter_context(trace.op(operator))
        if "Memcpy" in call:
            trace.copy("DtoH", 1, memory="Pageable", size=4)
        else:
            trace.sync(call=call)
    return trace


@pytest.mark.parametrize(("frames", "operators", "call", "rule"), CASES)
def test_a_way_to_wait_has_its_rule(frames: list[str], operators: tuple[str, ...], call: str, rule: str) -> None:
    (finding,) = (f for f in result_of(waiting(frames, operators, call)).findings if f.rule.startswith("sync-"))
    assert finding.rule == rule
    assert (finding.where.file, finding.where.line, finding.where.function) == ("train.py", 12, "train")
    assert finding.count == 1


@pytest.mark.parametrize(
    ("frames", "operators", "advice"),
    [
        (["torch/amp/grad_scaler.py(574): get_scale"], ITEM, "ask for it only every N steps"),
        (["torch/amp/grad_scaler.py(371): _maybe_opt_step"], ITEM, "train in bfloat16"),
        (["torch/optim/lr_scheduler.py(1699): step"], ITEM, "the scheduler needs the number"),
        (["torch/optim/lr_scheduler.py(1699): ReduceLROnPlateau.step"], ITEM, "the scheduler needs the number"),
        (
            ["torch/nn/modules/_functions.py(98): SyncBatchNorm.forward"],
            ("SyncBatchNorm", "aten::index", "aten::nonzero"),
            "in a CUDA graph SyncBatchNorm does not ask",
        ),
        (["torch/nn/utils/rnn.py(280): pack_padded_sequence"], ITEM, "torch's own code reads this value, not yours"),
        (["torch/autograd/graph.py(800): _engine_run_backward"], ITEM, "keep the tensors"),
        ([], ("aten::bincount", *ITEM), "index_add_"),
        ([], ("aten::repeat_interleave",), "output_size"),
    ],
)
def test_advice_is_for_the_call_that_waits(frames: list[str], operators: tuple[str, ...], advice: str) -> None:
    (finding,) = (
        each
        for each in result_of(waiting(frames, operators, "cudaStreamSynchronize")).findings
        if each.rule.startswith("sync-")
    )
    assert advice in finding.fix


@pytest.mark.parametrize("gpu", ["Tesla T4", "Tesla V100-SXM2-16GB"])
def test_a_gpu_that_multiplies_slowly_in_bfloat16_is_advised_to_keep_the_scaler(gpu: str) -> None:
    frames = ["torch/amp/grad_scaler.py(371): _maybe_opt_step"]
    (finding,) = (
        each
        for each in result_of(waiting(frames, ITEM, "cudaStreamSynchronize", gpu)).findings
        if each.rule == "sync-grad-scaler"
    )
    assert finding.fix.startswith("keep the scaler, and build the optimizer with fused=True")
    assert "bfloat16" not in finding.safe_if


def test_every_row_of_the_table_is_reached() -> None:
    assert {way.rule for way in WAYS} == {rule for *_, rule in CASES}


BUILTIN = "<built-in method {} of Tensor object at 0x7f00>"
MASK = "void cub::DeviceReduceSingleTileKernel<transform_iterator<at::native::(anonymous namespace)::NonZeroOp<bool>>>"
BARE = [
    # (frames below the user's, the kernel before the copy, bytes copied to the host or 0, the call that waits) → rule
    ([], "add", 4, "cudaStreamSynchronize", "sync-item"),
    ([], "add", 16, "cudaStreamSynchronize", "sync-item"),
    ([], "add", 17, "cudaStreamSynchronize", "sync-cpu"),
    ([], "add", 4, "cudaMemcpyAsync", "sync-item"),
    ([], "add", 4096, "cudaMemcpyAsync", "sync-cpu"),
    ([], MASK, 4, "cudaStreamSynchronize", "sync-nonzero"),
    ([BUILTIN.format("item")], "add", 4, "cudaStreamSynchronize", "sync-item"),
    ([BUILTIN.format("__bool__")], "add", 1, "cudaStreamSynchronize", "sync-bool"),
    ([BUILTIN.format("is_nonzero")], "add", 1, "cudaStreamSynchronize", "sync-bool"),
    ([BUILTIN.format("tolist")], "add", 8, "cudaStreamSynchronize", "sync-cpu"),
    ([BUILTIN.format("cpu")], "add", 8, "cudaMemcpyAsync", "sync-cpu"),
    ([BUILTIN.format("nonzero")], MASK, 4, "cudaStreamSynchronize", "sync-nonzero"),
    ([BUILTIN.format("masked_select")], MASK, 4, "cudaStreamSynchronize", "sync-mask"),
    (["<built-in method _unique2 of type object at 0x7f00>"], "sweep", 8, "cudaStreamSynchronize", "sync-shape"),
    (["<built-in method equal of type object>"], "all", 1, "cudaStreamSynchronize", "sync-equal"),
    (["<built-in function linalg_inv>"], "lu", 4, "cudaStreamSynchronize", "sync-linalg"),
    (["<built-in method index of list object at 0x7f00>"], "eq", 1, "cudaStreamSynchronize", "sync-item"),
    (["<built-in function print>", BUILTIN.format("item")], "add", 4, "cudaStreamSynchronize", "sync-print"),
    ([BUILTIN.format("synchronize")], "add", 0, "cudaStreamSynchronize", "sync-explicit"),
    (["<built-in function _cuda_synchronize>"], "add", 0, "cudaDeviceSynchronize", "sync-explicit"),
    ([], "add", 4, "cudaDeviceSynchronize", "sync-explicit"),
    ([], "add", 0, "cudaEventSynchronize", "sync-explicit"),
    ([], "add", 0, "cudaStreamSynchronize", "sync-explicit"),
]


def waiting_bare(frames: list[str], kernel: str, size: int, call: str) -> TraceBuilder:
    """A line that runs a kernel, copies so much to the host, and waits."""
    trace = TraceBuilder(operators=False, unstall={"recorder": "cupti", "lines": "exact"})
    with trace.frame("train.py", 41, "step"), ExitStack() as stack:
        trace.launch("gemm", 300)
        for frame in frames:
            stack.enter_context(trace.named_frame(frame))
        trace.launch(kernel, 1)
        if size:
            trace.copy("DtoH", 1, memory="Pageable" if "Memcpy" in call else "Pinned", size=size)
        trace.sync("device" if "Device" in call else "stream", call=None if "Memcpy" in call else call)
    return trace


@pytest.mark.parametrize(("frames", "kernel", "size", "call", "rule"), BARE)
def test_without_operators_it_is_told_by_what_is_called_and_read(
    frames: list[str], kernel: str, size: int, call: str, rule: str
) -> None:
    (finding,) = (f for f in result_of(waiting_bare(frames, kernel, size, call)).findings if f.rule.startswith("sync-"))
    assert finding.rule == rule
    where = finding.where
    assert (where.file, where.line, where.line_is, where.function) == ("train.py", 41, "exact", "step")
    assert finding.count == 1
    assert finding.edit == "remove-syncs:train.py:41"


@pytest.mark.parametrize(
    ("size", "said"), [(4, "to read a value of 4 B on the host"), (8192, "to read 8.00 KiB on the host")]
)
def test_what_is_read_is_said_where_that_is_all_that_tells(size: int, said: str) -> None:
    (finding,) = (
        f for f in result_of(waiting_bare([], "add", size, "cudaStreamSynchronize")).findings if f.rule[:5] == "sync-"
    )
    assert said in finding.saw


def test_a_wait_for_an_upload_is_the_copy_rules_business_without_operators_too() -> None:
    trace = TraceBuilder(operators=False)
    with trace.frame("train.py", 41, "step"):
        trace.launch("gemm", 300)
        trace.copy("HtoD", 100, memory="Pinned")
        trace.sync()
    rules = [finding.rule for finding in result_of(trace).findings]
    assert "blocking-pinned-copy" in rules
    assert not [rule for rule in rules if rule.startswith("sync-")]


def test_with_neither_operators_nor_lines_waits_go_everywhere_at_once() -> None:
    trace = TraceBuilder(operators=False, stacks=False, unstall={"recorder": "cupti", "lines": "none"})
    for number in range(3):
        with trace.annotation(f"unstall.step#{number}"):
            trace.launch("gemm", 300)
            trace.copy("DtoH", 1, size=4)
            trace.sync()
            trace.launch("relu", 20)
    result = result_of(trace)
    (finding,) = (finding for finding in result.findings if finding.rule == "sync-item")
    assert (finding.where.file, finding.edit, finding.count) == (None, "remove-syncs", 3)
    assert (finding.gain_ns or 0) > 0
    assert any("record without --lines none" in note for note in result.integrity.notes)
    assert not any("ProfilerActivity" in note for note in result.integrity.notes)


@pytest.mark.parametrize("frame", ["torch/cuda/memory.py(160): empty_cache", "torch/profiler/profiler.py(700): stop"])
def test_the_waits_of_empty_cache_and_of_the_recorder_are_not_listed_as_waits(frame: str) -> None:
    findings = result_of(waiting([frame], (), "cudaDeviceSynchronize")).findings
    assert not [finding for finding in findings if finding.rule.startswith("sync-")]


def test_a_frame_of_the_table_outside_the_users_line_does_not_count() -> None:
    """What matters is between the user's line and the wait: a user's module called by clip_grad_norm_ is not it."""
    trace = TraceBuilder()
    with (
        trace.frame("torch/nn/utils/clip_grad.py", 180, "clip_grad_norm_"),
        trace.frame("train.py", 12, "hook"),
    ):
        with trace.op("aten::mm"):
            trace.launch("gemm", 300)
        trace.item()
    assert [f.rule for f in result_of(trace).findings if f.rule.startswith("sync-")] == ["sync-item"]
