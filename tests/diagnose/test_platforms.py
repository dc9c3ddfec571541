"""Reports speak of the calls of the platform that was recorded."""

from __future__ import annotations

import pytest
from findings import only, result_of
from traces import TraceBuilder

from unstall.changes.runs import diff
from unstall.diagnose.explain import explain
from unstall.locate.platform import counterpart, in_words_of


def on_amd(trace: TraceBuilder) -> TraceBuilder:
    for event in trace.events:
        event["name"] = event["name"].replace("cuda", "hip") if event["cat"] == "cuda_runtime" else event["name"]
    return trace


def churning() -> TraceBuilder:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.launch("gemm", 100)
            trace.call("cudaFree", 500)
            trace.call("cudaMalloc", 500)
            trace.launch("gemm", 100)
    return trace


def out_of_memory() -> TraceBuilder:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.free(200)
            trace.free(200)
            trace.call("cudaMalloc", 200)
            for _ in range(5):
                trace.launch("gemm", 20)
    return trace


def test_the_setting_of_the_allocator_has_hips_name_on_amd() -> None:
    assert "PYTORCH_CUDA_ALLOC_CONF" in only(out_of_memory(), "allocator-churn").fix
    assert "PYTORCH_HIP_ALLOC_CONF" in only(on_amd(out_of_memory()), "allocator-churn").fix


def test_the_verdict_names_hips_calls_on_amd() -> None:
    assert "hipMalloc and hipFree" in result_of(on_amd(churning())).verdict.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("in a CUDA graph (unstall.graphed)", "in a HIP graph (unstall.graphed)"),
        ("cudaMemcpyAsync on a stream", "hipMemcpyAsync on a stream"),
        ("was ProfilerActivity.CUDA among them", "was ProfilerActivity.CUDA among them"),
        ("torch.cuda.synchronize() drains", "torch.cuda.synchronize() drains"),
    ],
)
def test_what_torch_calls_cuda_on_amd_stays(text: str, said: str) -> None:
    assert in_words_of("hip", text) == said


@pytest.mark.parametrize(
    ("name", "cudas"),
    [
        ("hipStreamSynchronize", "cudaStreamSynchronize"),
        ("hipHostMalloc", "cudaHostAlloc"),
        ("hipModuleLaunchKernel", "cuLaunchKernel"),
        ("cudaMalloc", "cudaMalloc"),
        ("hipsparse_kernel", "hipsparse_kernel"),
    ],
)
def test_each_call_of_hip_has_one_of_cuda(name: str, cudas: str) -> None:
    assert counterpart(name) == cudas


def waiting(length: int) -> TraceBuilder:
    """Without operators, waits are known by the name of the call alone."""
    trace = TraceBuilder(operators=False, stacks=False)
    for _ in range(4):
        with trace.step():
            trace.launch("gemm", length)
            trace.sync()
            trace.launch("gemm", length)
    return trace


def test_waits_of_two_vendors_are_compared_with_each_other() -> None:
    result = diff(explain(waiting(100).timeline()), explain(on_amd(waiting(300)).timeline()))
    assert [change.status for change in result.waits] == ["changed"]


def test_launches_without_kernels_are_not_asked_whether_a_gpu_was_used() -> None:
    trace = waiting(100)
    trace.events = [event for event in trace.events if event["cat"] != "kernel"]
    text = result_of(trace).verdict.text
    assert "8 launches" in text
    assert "was a GPU used?" not in text
