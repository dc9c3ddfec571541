"""The kernels of embeddings' gradients, in bags or not, with their times, on a real GPU or a virtual one.

    python -m benchmarks.embedding_bags --out FILE

What an H100 took is benchmarks/results/embedding_bags_h100.json.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.on_device import tell

_SIZES = ((50_000, 32, 512, 4), (50_000, 32, 64, 4), (50_000, 32, 4096, 8), (1_000, 128, 512, 4))


def main() -> None:
    tell(__doc__, lambda: {"calls": list(_calls())})


def _calls() -> Iterator[dict[str, object]]:
    for rows, width, bags, each in _SIZES:
        for mode in ("sum", "mean", "max", "no bags"):
            kernels = _kernels(rows, width, bags, each, mode)
            yield {"mode": mode, "rows": rows, "width": width, "bags": bags, "each": each, "kernels": kernels}


def _kernels(rows: int, width: int, bags: int, each: int, mode: str) -> list[tuple[str, float]]:
    """Returns the name and the time (us) of each kernel and memset of a gradient, in order."""
    import torch
    from torch._C._autograd import DeviceType
    from torch.nn import functional
    from torch.profiler import profile

    weight = torch.randn(rows, width, device="cuda", requires_grad=True)
    indices = torch.randint(0, rows, (bags * each,), device="cuda")
    offsets = torch.arange(0, bags * each, each, device="cuda")
    if mode == "no bags":
        result = functional.embedding(indices, weight)
    else:
        result = functional.embedding_bag(indices, weight, offsets, mode=mode)
    ones = torch.ones_like(result)

    def run() -> None:
        torch.autograd.grad(result, weight, ones, retain_graph=True)
        torch.cuda.synchronize()

    for _ in range(3):
        run()
    with profile() as recorded:
        run()
    events = recorded.events() or ()
    cuda = [each for each in events if each.device_type == DeviceType.CUDA]
    cuda.sort(key=lambda event: event.time_range.start)
    return [(event.name, round(event.device_time, 2)) for event in cuda]


if __name__ == "__main__":
    main()
