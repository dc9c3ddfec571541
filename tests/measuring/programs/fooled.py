"""Functions that would fool a benchmark, on a virtual GPU: which serious verdicts each gets. Prints JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import unstall
from unstall.virtual.entry import virtual_gpu

timer = unstall.Timer("sum(range(1000))")  # made before, so that it must not keep the machine's clock
virtual_gpu("h200").start()
import torch  # noqa: E402

x = torch.randn(64, 64, device="cuda")
w = torch.nn.Parameter(torch.randn(64, 64, device="cuda"))
nan = torch.full((64, 64), float("nan"), device="cuda")
kept: list[Any] = []
state = [x]
hidden = [x]
calls = [0]


def grows() -> None:
    kept.append(x @ x)


def rebinds() -> Any:
    state[0] = state[0] @ x
    return state[0]


def graph_grows() -> Any:
    hidden[0] = torch.tanh(hidden[0] @ w)
    return hidden[0]


def in_threads() -> list[Any]:
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(x @ x)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def rarely_slow() -> Any:
    calls[0] += 1
    result = x @ x
    for _ in range(30 if calls[0] % 10 == 0 else 0):
        result = result @ x
    return result


def lazily() -> list[Iterator[Any]]:
    return [(x @ x for _ in range(3))]


async def coroutine() -> Any:
    return x @ x


def of_nan() -> Any:
    return nan @ nan


def fine() -> Any:
    return x @ x


cases = (grows, rebinds, graph_grows, in_threads, rarely_slow, lazily, coroutine, of_nan, fine)
measured = {fn.__name__: unstall.bench(fn, max_seconds=1.0) for fn in cases}
ran: list[int] = []


def counted() -> Any:
    ran.append(1)
    return x @ x


said: dict[str, Any] = {
    "serious": {
        name: sorted({each.kind for each in found.verdicts if each.serious}) for name, found in measured.items()
    },
    "lazily_ns": measured["lazily"].wall.median,
    "timer_s": timer.blocked_autorange(min_run_time=0.01).median,
    "fine_ns": measured["fine"].throughput.median,  # type: ignore[union-attr]
}
for name in ("blocked_autorange", "adaptive_autorange"):
    ran.clear()
    timing = getattr(unstall.Timer("counted()", globals={"counted": counted}), name)()
    said[name] = {"runs": len(ran), "ns": timing.median * 1e9, "blocks": timing.raw_times}
ran.clear()
unstall.Timer("counted()", globals={"counted": counted}).timeit(30)
said["timeit"] = len(ran)
print(json.dumps(said))
