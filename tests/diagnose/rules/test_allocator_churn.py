"""Memory that is taken from the driver again and again."""

from __future__ import annotations

from findings import found, only, place
from traces import TraceBuilder

STEPS = 4


def allocating(call: str | None, *, first_step_only: bool = False, kernel_us: float = 100) -> TraceBuilder:
    """In each step a kernel that the host waits for, 200 µs in the driver, and another kernel."""
    trace = TraceBuilder()
    for step in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.launch("gemm", kernel_us)
            trace.item()
            if call == "cudaFree":
                with trace.frame("torch/cuda/memory.py", 160, "empty_cache"):
                    trace.free(200)
            elif call and (step == 0 or not first_step_only):
                with trace.op("aten::empty"):
                    trace.call(call, 200)
            trace.launch("gemm", kernel_us)
    return trace


def test_cuda_malloc_in_every_step_is_found_with_what_the_device_waits() -> None:
    """The device is dry from the end of the `.item()`; the next kernel starts after leaving its two operators (2 µs),
    entering one (1), 200 µs of cudaMalloc, leaving (1), launching (5) and arriving (2). All but the driver's 200
    and the 2 of arriving are due to the `.item()`."""
    finding = only(allocating("cudaMalloc"), "allocator-churn")
    assert place(finding) == ("train.py", 12, "train")
    assert (finding.count, finding.wait_ns, finding.exposed_ns) == (STEPS, 200_000, 202_000)
    assert finding.edit == "keep-cache:train.py:12:aten::empty"
    assert not finding.harmless


def test_empty_cache_in_every_step_is_found_and_its_wait_is_not_listed_twice() -> None:
    trace = allocating("cudaFree")
    finding = only(trace, "allocator-churn")
    assert (finding.count, finding.wait_ns) == (STEPS, 200_000)
    assert "cudaFree" in finding.saw
    assert found(trace, "sync-explicit") == []


def test_one_empty_cache_that_gives_back_several_blocks_is_one_wait() -> None:
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.launch("gemm", 100)
            with trace.frame("torch/cuda/memory.py", 160, "empty_cache"):
                trace.free(100)
                trace.free(100)
            trace.launch("gemm", 100)
    finding = only(trace, "allocator-churn")
    assert finding.count == STEPS
    assert finding.saw == "8 calls of cudaFree: giving memory back waits for the whole device, once for calls in a row"


def test_a_cache_that_grows_in_the_first_step_alone_is_first_use() -> None:
    trace = allocating("cudaMalloc", first_step_only=True)
    assert found(trace, "allocator-churn") == []
    assert only(trace, "first-use").exposed_ns == round(202_000 / STEPS)


def test_pinned_memory_has_a_finding_of_its_own() -> None:
    trace = allocating("cudaHostAlloc")
    finding = only(trace, "pinned-allocation")
    assert (finding.count, finding.wait_ns) == (STEPS, 200_000)
    assert found(trace, "allocator-churn") == []


def test_without_allocations_there_is_neither() -> None:
    trace = allocating(None)
    assert found(trace, "allocator-churn") == found(trace, "pinned-allocation") == []


def test_allocations_while_the_device_is_at_work_are_harmless() -> None:
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.launch("gemm", 10_000)
            trace.call("cudaMalloc", 200)
            trace.launch("gemm", 10_000)
    finding = only(trace, "allocator-churn")
    assert finding.harmless
    assert (finding.count, finding.exposed_ns) == (STEPS, 0)


def test_it_says_only_what_was_called_and_in_how_many_steps() -> None:
    malloc, free = only(allocating("cudaMalloc"), "allocator-churn"), only(allocating("cudaFree"), "allocator-churn")
    assert malloc.title == "Device memory is taken from the driver"
    assert (malloc.count, malloc.steps_seen) == (4, 4)
    assert malloc.saw == "4 calls of cudaMalloc: the host is busy in the driver"
    assert free.title == "Device memory is given back to the driver"
    assert free.saw == "4 calls of cudaFree: giving memory back waits for the whole device"
    trace = TraceBuilder()
    for step in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            if step == 2:
                trace.call("cudaMalloc", 200)
            trace.launch("gemm", 100)
    finding = only(trace, "allocator-churn")
    assert (finding.count, finding.steps_seen) == (1, 1)
    assert finding.saw.startswith("1 call of cudaMalloc")


def test_of_memory_that_is_never_given_back_no_empty_cache_is_blamed() -> None:
    """A run whose one step is its set-up: what is taken once is not taken in a loop."""
    trace = TraceBuilder()
    with trace.frame("train.py", 3, "<module>"), trace.op("aten::to"):
        trace.call("cudaMalloc", 200)
        trace.launch("copy", 10)
    grown, given_back = only(trace, "allocator-churn"), only(allocating("cudaFree"), "allocator-churn")
    assert "empty_cache" not in grown.fix
    assert "unstall.warm_up" in grown.fix
    assert "remove torch.cuda.empty_cache()" in given_back.fix


def test_without_a_call_of_empty_cache_none_is_blamed() -> None:
    """The allocator gives its blocks back by itself if memory runs out."""
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.free(200)
            trace.free(200)
            trace.call("cudaMalloc", 200)
            for _ in range(5):
                trace.launch("gemm", 20)
    fix = only(trace, "allocator-churn").fix
    assert "empty_cache" not in fix
    assert "memory runs out" in fix


def test_memory_taken_and_given_back_for_every_tensor_means_that_caching_is_off() -> None:
    trace = TraceBuilder(stacks=False)
    for _ in range(STEPS):
        with trace.step():
            for _ in range(5):
                with trace.op("aten::add"):
                    trace.call("cudaMalloc", 50)
                    trace.launch("add", 20)
                trace.free(50)
    findings = found(trace, "allocator-churn")
    assert len(findings) == 2  # what operators take, and what is given back between them
    for finding in findings:
        assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in finding.fix
        assert "empty_cache" not in finding.fix
