"""What names mean: API calls, waits, copies, frames."""

from __future__ import annotations

import pytest

from unstall.read import names
from unstall.timeline.columns import CopyDirection, DeviceKind, HostKind, HostMemory, WaitKind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernel", HostKind.LAUNCH),
        ("cudaLaunchKernelExC", HostKind.LAUNCH),
        ("cudaLaunchCooperativeKernel", HostKind.LAUNCH),
        ("cuLaunchKernel", HostKind.LAUNCH),
        ("cuLaunchKernelEx", HostKind.LAUNCH),
        ("hipLaunchKernel", HostKind.LAUNCH),
        ("hipExtLaunchKernel", HostKind.LAUNCH),
        ("hipModuleLaunchKernel", HostKind.LAUNCH),
        ("cudaGraphLaunch", HostKind.GRAPH_LAUNCH),
        ("cuGraphLaunch", HostKind.GRAPH_LAUNCH),
        ("hipGraphLaunch", HostKind.GRAPH_LAUNCH),
        ("cudaMemcpyAsync", HostKind.COPY),
        ("cudaMemcpy", HostKind.COPY),
        ("cuMemcpyHtoDAsync_v2", HostKind.COPY),
        ("hipMemcpyWithStream", HostKind.COPY),
        ("cudaMemsetAsync", HostKind.MEMSET),
        ("cudaStreamSynchronize", HostKind.SYNC),
        ("cudaDeviceSynchronize", HostKind.SYNC),
        ("cudaEventSynchronize", HostKind.SYNC),
        ("cuCtxSynchronize", HostKind.SYNC),
        ("hipDeviceSynchronize", HostKind.SYNC),
        ("cudaEventRecord", HostKind.EVENT_RECORD),
        ("cudaEventRecordWithFlags", HostKind.EVENT_RECORD),
        ("cudaStreamWaitEvent", HostKind.EVENT_WAIT),
        ("hipStreamWaitEvent", HostKind.EVENT_WAIT),
        ("cudaMalloc", HostKind.ALLOC),
        ("cudaHostAlloc", HostKind.ALLOC),
        ("cuMemCreate", HostKind.ALLOC),
        ("hipMalloc", HostKind.ALLOC),
        ("cudaFree", HostKind.FREE),
        ("cudaFreeHost", HostKind.FREE),
        ("cuModuleLoadData", HostKind.LOAD),
        ("cuLibraryLoadData", HostKind.LOAD),
        ("cuDevicePrimaryCtxRetain", HostKind.LOAD),
        ("cudaGetDevice", HostKind.CALL),
        ("cudaEventQuery", HostKind.CALL),
        ("cudaStreamIsCapturing", HostKind.CALL),
        ("cudaFuncGetAttributes", HostKind.CALL),
        ("cudaGraphInstantiate", HostKind.CALL),
        ("cudaMemGetInfo", HostKind.CALL),
        ("urEnqueueKernelLaunch", HostKind.LAUNCH),
        ("urEnqueueKernelLaunchWithArgsExp", HostKind.LAUNCH),
        ("zeCommandListAppendLaunchKernel", HostKind.LAUNCH),
        ("urEnqueueUSMMemcpy", HostKind.COPY),
        ("piextUSMEnqueueMemcpy", HostKind.COPY),
        ("zeCommandListAppendMemoryCopy", HostKind.COPY),
        ("urEnqueueUSMFill", HostKind.MEMSET),
        ("urQueueFinish", HostKind.SYNC),
        ("urEventWait", HostKind.SYNC),
        ("zeEventHostSynchronize", HostKind.SYNC),
        ("urEnqueueEventsWait", HostKind.CALL),
        ("urUSMDeviceAlloc", HostKind.ALLOC),
        ("urUSMFree", HostKind.FREE),
        ("urProgramBuild", HostKind.LOAD),
        ("zero_grad", HostKind.CALL),
        ("", HostKind.CALL),
    ],
)
def test_the_kind_of_a_call(name: str, kind: HostKind) -> None:
    assert names.call_kind(name) == kind


@pytest.mark.parametrize(
    "category",
    ["cuda_runtime", "hip_driver", "xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime", "glow_runtime"],
)
def test_the_calls_of_every_platform_are_calls(category: str) -> None:
    assert names.host_kind(category) == HostKind.CALL


def test_what_mtia_runs_is_work_of_the_device() -> None:
    assert names.device_kind("mtia_ccp_events") == DeviceKind.KERNEL


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Stream Sync", WaitKind.STREAM),
        ("Event Sync", WaitKind.EVENT),
        ("Context Sync", WaitKind.DEVICE),
        ("Stream Wait Event", WaitKind.STREAM_EVENT),
        ("cudaStreamSynchronize", WaitKind.STREAM),
        ("cudaEventSynchronize", WaitKind.EVENT),
        ("cudaDeviceSynchronize", WaitKind.DEVICE),
        ("cuCtxSynchronize", WaitKind.DEVICE),
        ("hipStreamWaitEvent", WaitKind.STREAM_EVENT),
        ("urQueueFinish", WaitKind.STREAM),
        ("urEventWait", WaitKind.EVENT),
    ],
)
def test_what_a_wait_waits_for(name: str, kind: WaitKind) -> None:
    assert names.wait_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "direction", "memory"),
    [
        ("Memcpy HtoD (Pageable -> Device)", CopyDirection.HOST_TO_DEVICE, HostMemory.PAGEABLE),
        ("Memcpy HtoD (Pinned -> Device)", CopyDirection.HOST_TO_DEVICE, HostMemory.PINNED),
        ("Memcpy DtoH (Device -> Pageable)", CopyDirection.DEVICE_TO_HOST, HostMemory.PAGEABLE),
        ("Memcpy DtoH (Device -> Pinned)", CopyDirection.DEVICE_TO_HOST, HostMemory.PINNED),
        ("Memcpy DtoD (Device -> Device)", CopyDirection.DEVICE_TO_DEVICE, HostMemory.UNKNOWN),
        ("Memcpy PtoP (Device -> Device)", CopyDirection.PEER_TO_PEER, HostMemory.UNKNOWN),
        ("CopyHostToDevice", CopyDirection.HOST_TO_DEVICE, HostMemory.UNKNOWN),
        ("CopyDeviceToHost", CopyDirection.DEVICE_TO_HOST, HostMemory.UNKNOWN),
        ("Memcpy M2D(Memory -> Device)", CopyDirection.HOST_TO_DEVICE, HostMemory.UNKNOWN),
        ("Memcpy D2M(Device -> Memory)", CopyDirection.DEVICE_TO_HOST, HostMemory.UNKNOWN),
        ("Memcpy D2D(Device -> Device)", CopyDirection.DEVICE_TO_DEVICE, HostMemory.UNKNOWN),
        ("Memcpy Unknown", CopyDirection.NONE, HostMemory.UNKNOWN),
    ],
)
def test_the_way_and_the_memory_of_a_copy(name: str, direction: CopyDirection, memory: HostMemory) -> None:
    assert (names.copy_direction(name), names.host_memory(name)) == (direction, memory)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("train.py(12): step", ("train.py", 12, "step")),
        ("a (copy)/x(3).py(12): <lambda>", ("a (copy)/x(3).py", 12, "<lambda>")),
        ("C:/work/train.py(1): <module>", ("C:/work/train.py", 1, "<module>")),
        ("<string>(2): __init__", ("<string>", 2, "__init__")),
        ("nn.Module: Linear_0", ("", -1, "nn.Module: Linear_0")),
        ("<built-in function linear>", ("", -1, "<built-in function linear>")),
        ("<built-in method tensor of type object at 0x7f63c2f28800>", ("", -1, "<built-in method tensor of type>")),
        ("train.py(99999999999999999999): step", ("train.py", 2**31 - 1, "step")),
        ("", ("", -1, "")),
    ],
)
def test_a_frames_file_line_and_function(name: str, place: tuple[str, int, str]) -> None:
    assert names.frame(name) == place


def test_spans_that_old_recorders_wrote_as_operators_are_told_by_name() -> None:
    for name in ("ProfilerStep#3", "Optimizer.step#SGD.step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter"):
        assert names.is_span(name)
    assert not names.is_span("aten::mm")
