"""On a CUDA device: events beside CUPTI, and functions that wait while the queue is held back."""

from __future__ import annotations

import inspect
import time
from typing import Any

import pytest
import torch

import unstall
from unstall.bench.adapters import adapter_for
from unstall.bench.blocker import Blocker

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def device_ns(fn: Any, method: str, cache: Any) -> float:
    measured = unstall.bench(fn, method=method, cache=cache, max_seconds=0.5)
    assert measured.device is not None
    return measured.device.median


@pytest.mark.parametrize("cache", ["cold", "hot"])
@pytest.mark.parametrize("size", [256, 1024, 2048])
def test_events_and_cupti_agree_on_one_kernel(size: int, cache: Any) -> None:
    x = torch.randn(size, size, device="cuda")
    cupti, events = (device_ns(lambda: torch.exp(x), method, cache) for method in ("cupti", "events"))
    assert abs(events - cupti) < max(0.05 * cupti, 500)


@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_events_and_cupti_agree_on_kernels_with_gaps_between(cache: Any) -> None:
    x = torch.randn(256, 256, device="cuda")
    cupti, events = (device_ns(lambda: [x + 1 for _ in range(10)], method, cache) for method in ("cupti", "events"))
    assert abs(events - cupti) < 0.3 * cupti  # with the gaps it would be 1.8 times as long


def test_ops_are_counted_where_each_follows_on_one_other() -> None:
    x, side = torch.randn(256, 256, device="cuda"), torch.cuda.Stream()
    adapter = adapter_for([x])

    def forks() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add(1)
        x.add(1)
        torch.cuda.current_stream().wait_stream(side)

    assert adapter.ops_in_a_row(lambda: x.add(1)) == 1
    assert adapter.ops_in_a_row(lambda: [x.add(1) for _ in range(7)]) == 7
    assert adapter.ops_in_a_row(lambda: None) == 0
    assert adapter.ops_in_a_row(forks) is None
    assert adapter.ops_in_a_row(lambda: x.sum().item()) is None
    torch.cuda.synchronize()
    assert float(x.add(1).sum()) == pytest.approx(float(x.sum()) + x.numel(), rel=1e-3)


def test_a_flushed_cache_is_slower_than_a_warm_one() -> None:
    table, rows = torch.randn(20_000, 256, device="cuda"), torch.randint(0, 20_000, (8192,), device="cuda")
    cold, hot = (device_ns(lambda: table[rows], "cupti", cache) for cache in ("cold", "hot"))
    assert cold > 1.3 * hot


def test_a_function_that_waits_is_found_by_events_too_with_its_line() -> None:
    x = torch.randn(512, 512, device="cuda")

    def waits() -> float:
        return float((x @ x).sum())

    began = time.monotonic()
    measured = unstall.bench(waits, method="events", max_seconds=0.5)
    assert time.monotonic() - began < 15
    verdict = next(each for each in measured.verdicts if each.kind == "sync inside")
    assert verdict.place == f"{__file__}:{inspect.getsourcelines(waits)[1] + 1}"


def test_what_is_queued_does_not_run_while_the_stream_is_held_back() -> None:
    x = torch.zeros(1, device="cuda")
    adapter = adapter_for([x])
    x.add_(1)
    adapter.synchronize()
    with Blocker(adapter, 5.0) as blocker:
        done: Any = adapter.event()
        time.sleep(0.05)
        held = not done.query()
    adapter.synchronize()
    assert (blocker.waits, held, blocker.timed_out) == (True, True, False)


def test_the_stream_is_let_go_when_time_is_up() -> None:
    adapter = adapter_for([torch.zeros(1, device="cuda")])
    began = time.monotonic()
    with Blocker(adapter, 0.2) as blocker:
        adapter.synchronize()
    assert blocker.timed_out
    assert 0.15 < time.monotonic() - began < 2.0


def test_more_launches_than_a_queue_holds_are_measured_in_smaller_batches() -> None:
    x = torch.randn(64, 64, device="cuda")
    measured = unstall.bench(lambda: [x + 1 for _ in range(200)], method="events", max_seconds=1.0)
    assert measured.device is not None
    assert not measured.has("sync inside")
    assert measured.device.median > 100_000
