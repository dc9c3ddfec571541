"""What four threads get from the helpers on one virtual GPU, and what one thread gets. Each has its own block."""

import json
import sys
import threading
from collections.abc import Callable
from functools import partial

import unstall

THREADS = 4
results: dict[str, object] = {}
errors: list[str] = []


def block() -> list[object]:
    """The sum of a product, and whether the block's timeline has its kernels."""
    with unstall.virtual_gpu("h100") as gpu:
        import torch

        x = torch.ones(64, 64, device="cuda")
        total = (x @ x).sum().item()
    return [total, int((gpu.timeline().device.kind == 0).sum()) >= 2]


def guarded() -> list[object]:
    """A guard counts the waits of its own thread only."""
    x = torch.ones(64, 64, device="cuda")
    with unstall.no_sync("count") as guard:
        for _ in range(3):
            x.mul(2).sum().item()  # no product: the first in each thread waits for memory of cuBLAS
        with unstall.allow_sync("it is tested"):
            x.sum().item()
    return [guard.count, [wait.line for wait in guard.waits]]


def metrics() -> list[object]:
    rows: list[unstall.MetricBuffer] = []
    with unstall.MetricBuffer(rows.append) as buffer:
        for value in range(40):
            buffer.add(loss=torch.full((), float(value), device="cuda"))
    return [row.values["loss"] for row in rows]


def shared_metrics() -> list[object]:
    for value in range(40):
        shared.add(loss=torch.full((), float(value), device="cuda"))
    return []


def mapped() -> list[object]:
    return [each.item() for each in unstall.stream_map(lambda item: item.cuda().sum(), [torch.ones(8)] * 20)]


def prefetched() -> list[object]:
    batches = [torch.full((8,), float(number)) for number in range(20)]
    return [batch.sum().item() for batch in unstall.prefetch(batches, "cuda")]


def to_host() -> list[object]:
    return [each.tolist() for each in unstall.to_host([torch.ones(4, device="cuda")] * 3).result()]


def graphed() -> list[object]:
    return [function(torch.full((8,), float(number), device="cuda")).sum().item() for number in range(6)]


def stepped() -> list[object]:
    for _ in range(20):
        unstall.step()
    return []


def timed() -> list[object]:
    x = torch.ones(64, 64, device="cuda")
    timing = unstall.Timer("x @ x", globals={"x": x}).timeit(5)
    with unstall.Stopwatch("product", show=False) as watch:
        x @ x
    return [timing.number_per_run, timing.median > 0, watch.description, (watch.seconds or 0) > 0]


def together(call: Callable[[], list[object]]) -> list[list[object]]:
    barrier = threading.Barrier(THREADS)
    got: list[list[object]] = [[]] * THREADS

    def run(place: int) -> None:
        barrier.wait()
        try:
            got[place] = call()
        except Exception as error:
            errors.append(f"{call.__name__}: {error!r}")

    threads = [threading.Thread(target=partial(run, place), daemon=True) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    if any(thread.is_alive() for thread in threads):
        errors.append(f"{call.__name__}: it hangs")
    return got


sys.setswitchinterval(1e-5)
results["block"] = [together(block), block()]  # the threads begin the virtual GPU and import torch
import torch  # noqa: E402 - as the blocks did

with unstall.virtual_gpu("h100"):
    function = unstall.graphed(lambda x: x * 2 + 1)
    for call in (guarded, metrics, mapped, prefetched, to_host, graphed, stepped, timed):
        alone = call()
        results[call.__name__] = [together(call), alone]
    delivered: list[float] = []
    with unstall.MetricBuffer(lambda row: delivered.append(row.values["loss"])) as shared:
        together(shared_metrics)
    results["shared metrics"] = [[sorted(delivered)], [float(value) for value in range(40) for _ in range(THREADS)]]
print(json.dumps({"results": results, "errors": errors}))
