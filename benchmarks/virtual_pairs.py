"""Pairs of ten kernels in three sizes on two branches of a CUDA graph: on a real GPU, and on a virtual one.

    python -m benchmarks.virtual_pairs --out real.json                          # on a GPU
    python -m unstall.virtual --gpu h100 -m benchmarks.virtual_pairs --against real.json   # anywhere

Both branches take about as long alone. What is compared is how long they take together.

There are six sets of kernels (`--set`):

- `first`: the model of pairs was made with it. If a kernel is paired with itself, both branches have the same data.
- `apart`: the same kernels, but each branch has data of its own, as in most programs.
- `more`: ten other kernels. Each branch has data of its own. What they showed was mended in the model.
- `last` and `new`: twice ten further kernels. Some of what they showed was mended, too.
- `fresh`: ten kernels that were first compared once all of the above was mended.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.on_device import comparing, measured_on

_SIZES = {"small": 1, "medium": 8, "large": 64}
_EDGE = {"small": 128, "medium": 512, "large": 2048}
_LIMIT = 0.15
_EACH = 15  # calls of the longer kernel
Call = Callable[[], Any]


def main(argv: list[str] | None = None) -> int:
    parser = comparing(__doc__)
    parser.add_argument("--set", choices=tuple(_SETS), default="first", help="which kernels")
    args = parser.parse_args(argv)
    import torch

    known = json.loads(args.against.read_text())["sizes"] if args.against else {}
    sizes: dict[str, list[dict[str, Any]]] = {}
    for size in _SIZES:
        make = _SETS[args.set]
        calls = make(size)
        others = calls if args.set == "first" else make(size)
        counts = {(row["a"], row["b"]): row["counts"] for row in known.get(size, [])}
        alone = {name: (_ms([call], [60]) - _ms([call], [20])) / 40 for name, call in calls.items()}
        names = list(calls)
        sizes[size] = [
            _pair((a, calls[a]), (b, others[b]), counts.get((a, b)) or _counts(alone[a], alone[b]))
            for at, a in enumerate(names)
            for b in names[at:]
        ]
        print(size, {name: f"{1e3 * ms:.1f} us" for name, ms in alone.items()}, flush=True)
    for size, rows in known.items():
        _compare(size, sizes[size], rows)
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"gpu": torch.cuda.get_device_name(), "sizes": sizes}) + "\n")
    return 0


def _counts(a: float, b: float) -> list[int]:
    longest = max(a, b) * _EACH
    return [max(5, min(200, round(longest / each))) for each in (a, b)]


def _pair(one: tuple[str, Call], other: tuple[str, Call], counts: Sequence[int]) -> dict[str, Any]:
    (a, first), (b, second) = one, other
    ms = [_ms([first], counts[:1]), _ms([second], counts[1:]), _ms([first, second], counts)]
    return {"a": a, "b": b, "counts": counts, "ms": ms}


def _compare(size: str, rows: list[dict[str, Any]], real: list[dict[str, Any]]) -> None:
    """Prints how long pairs of kernels take together, over what each takes alone on the same GPU.

    Args:
        size: The size of the kernels.
        rows: What was measured here.
        real: What was measured on the real GPU.
    """
    errors = {}
    here, there = _alone(rows), _alone(real)
    for row, true in zip(rows, real, strict=True):
        # What each takes alone is not in question: the prediction is scaled to it.
        alone = [zip(row["counts"], (each[row["a"]], each[row["b"]]), strict=True) for each in (there, here)]
        one, other = (sum(count * ms for count, ms in each) for each in alone)
        errors[row["a"], row["b"]] = row["ms"][2] * one / other / true["ms"][2]
    misses = {pair: ratio for pair, ratio in errors.items() if not 1 / (1 + _LIMIT) <= ratio <= 1 + _LIMIT}
    itself = sum(a == b for a, b in misses)
    print(
        f"{size}: {len(errors) - len(misses)} of {len(errors)} within {_LIMIT:.0%}, median "
        f"{statistics.median(errors.values()):.2f}; {itself} of the misses are a kernel with itself"
    )
    for (a, b), ratio in sorted(misses.items(), key=lambda each: each[1]):
        print(f"    {a:10} {b:10} {ratio:.2f}")


def _alone(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Returns how long a call of each kernel takes alone, in ms: the median of its pairs. A long product before it, or
    its own power, makes one slower by up to a fifth at times.
    """
    ms: dict[str, list[float]] = {}
    for row in rows:
        for name, whole, count in zip((row["a"], row["b"]), row["ms"], row["counts"], strict=False):
            ms.setdefault(name, []).append(whole / count)
    return {name: statistics.median(each) for name, each in ms.items()}


def _random(*shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))


def _calls(size: str) -> dict[str, Call]:
    import torch
    from torch.nn import functional

    random = _random
    s, n = _SIZES[size], _EDGE[size]
    a, b, e = (random(s * 65536) for _ in range(3))
    added, exponents = torch.empty_like(a), torch.empty_like(e)
    one, other = random(n, n), random(n, n)
    half, halves = random(2 * n, 2 * n, dtype="bfloat16"), random(2 * n, 2 * n, dtype="bfloat16")
    product, of_halves = torch.empty_like(one), torch.empty_like(half)
    rows, wide, normal = random(s * 64, 1024), random(s * 64, 1024), random(s * 64, 1024)
    sums, shares = torch.empty(s * 64, device="cuda"), torch.empty_like(wide)
    images, filters = random(max(1, s // 4), 64, 56, 56), random(64, 64, 3, 3)
    query = random(max(1, s // 8), 8, 256, 64, dtype="bfloat16")
    high, turned = random(s * 256, 256), torch.empty(256, s * 256, device="cuda")
    return {
        "add": lambda: torch.add(a, b, out=added),
        "exp": lambda: torch.exp(e, out=exponents),
        "mm f32": lambda: torch.mm(one, other, out=product),
        "mm bf16": lambda: torch.mm(half, halves, out=of_halves),
        "sum rows": lambda: torch.sum(rows, -1, out=sums),
        "softmax": lambda: torch.softmax(wide, -1, out=shares),
        "layer_norm": lambda: functional.layer_norm(normal, (1024,)),
        "conv": lambda: functional.conv2d(images, filters, padding=1),
        "attention": lambda: functional.scaled_dot_product_attention(query, query, query),
        "transpose": lambda: turned.copy_(high.t()),
    }


def _more_calls(size: str) -> dict[str, Call]:
    import torch
    from torch.nn import functional

    random = _random
    s, n = _SIZES[size], _EDGE[size]
    x, scaled = random(s * 65536), random(s * 131072, dtype="bfloat16")
    smooth, scales = torch.empty_like(x), torch.empty_like(scaled)
    maps = random(max(1, s // 2), 64, 28, 28)
    mean, variance, weight, bias = (random(64).abs() for _ in range(4))
    table, numbers = random(s * 512, 256), torch.randint(s * 512, (s * 256,), device="cuda")
    chosen = torch.empty(s * 256, 256, device="cuda")
    series = random(s * 64, 512)
    totals = torch.empty_like(series)
    lefts, rights = random(4, n // 2, n // 2), random(4, n // 2, n // 2)
    products = torch.empty_like(lefts)
    tall, narrow = random(s * 1024, 128, dtype="float16"), random(128, 256, dtype="float16")
    of_tall = torch.empty(s * 1024, 256, device="cuda", dtype=torch.float16)
    images, filters = random(max(1, s // 4), 128, 28, 28, dtype="bfloat16"), random(256, 128, 1, 1, dtype="bfloat16")
    pooled = random(max(1, s // 4), 32, 56, 56)
    parts = random(s * 128, 128), random(s * 128, 384)
    joined = torch.empty(s * 128, 512, device="cuda")
    return {
        "gelu": lambda: torch.ops.aten.gelu.out(x, out=smooth),
        "mul bf16": lambda: torch.mul(scaled, 1.5, out=scales),
        "batch_norm": lambda: functional.batch_norm(maps, mean, variance, weight, bias),
        "gather": lambda: torch.index_select(table, 0, numbers, out=chosen),
        "cumsum": lambda: torch.cumsum(series, -1, out=totals),
        "bmm f32": lambda: torch.bmm(lefts, rights, out=products),
        "mm f16": lambda: torch.mm(tall, narrow, out=of_tall),
        "conv 1x1": lambda: functional.conv2d(images, filters),
        "max_pool": lambda: functional.max_pool2d(pooled, 3, 2, 1),
        "cat": lambda: torch.cat(parts, -1, out=joined),
    }


def _last_calls(size: str) -> dict[str, Call]:
    import torch
    from torch.nn import functional

    random = _random
    s, n = _SIZES[size], _EDGE[size]
    x, y = random(s * 65536, dtype="float16"), random(s * 65536)
    rectified, chosen = torch.empty_like(x), torch.empty_like(y)
    numbers, mask = random(s * 32768), random(s * 65536) > 0
    tokens = random(s * 32, 2048)
    high = random(s * 256, 512)
    column = torch.empty(512, device="cuda")
    groups = random(max(1, s // 2), 32, 32, 32)
    total, places = torch.zeros(s * 64, 512, device="cuda"), torch.randint(s * 64, (s * 64,), device="cuda")
    more = random(s * 64, 512)
    pages = random(max(1, s // 4), 64, 56, 56)
    row, weight, bias = random(n, 4 * n, dtype="bfloat16"), random(n, 4 * n, dtype="bfloat16"), random(n)
    bias = bias.to(torch.bfloat16)
    unordered = random(s * 64, 256)
    return {
        "relu f16": lambda: torch.clamp_min(x, 0, out=rectified),
        "where": lambda: torch.where(mask, y, chosen, out=chosen),
        "to bf16": lambda: numbers.to(torch.bfloat16),
        "log_softmax": lambda: functional.log_softmax(tokens, -1),
        "sum columns": lambda: torch.sum(high, 0, out=column),
        "group_norm": lambda: functional.group_norm(groups, 8),
        "index_add": lambda: total.index_add_(0, places, more),
        "avg_pool": lambda: functional.avg_pool2d(pages, 2),
        "linear bf16": lambda: functional.linear(row, weight, bias),
        "amax": lambda: torch.amax(unordered, -1),
    }


def _new_calls(size: str) -> dict[str, Call]:
    import torch
    from torch.nn import functional

    random = _random
    s, n = _SIZES[size], _EDGE[size]
    logits, gates = random(s * 131072, dtype="bfloat16"), torch.empty(s * 131072, device="cuda", dtype=torch.bfloat16)
    a, b, c, sums = (random(s * 65536) for _ in range(4))
    scores, hidden = random(s * 64, 1024), random(s * 64, 1024) > 0
    values = random(s * 64, 512)
    turned = random(s * 32, 64, 64, dtype="float16")
    table, words = random(s * 256, 512, dtype="float16"), torch.randint(s * 256, (s * 128,), device="cuda")
    maps, filters = random(max(1, s // 4), 64, 56, 56), random(64, 1, 3, 3)
    thin, square = random(64, n), random(n, n)
    wide = random(s * 32, 2048)
    small = random(max(1, s // 4), 32, 28, 28)
    return {
        "sigmoid bf16": lambda: torch.sigmoid(logits, out=gates),
        "addcmul": lambda: torch.addcmul(a, b, c, out=sums),
        "masked_fill": lambda: scores.masked_fill(hidden, 0.0),
        "argmax": lambda: values.argmax(-1),
        "flip": lambda: turned.flip(-1),
        "embedding": lambda: functional.embedding(words, table),
        "depthwise": lambda: functional.conv2d(maps, filters, padding=1, groups=64),
        "mm thin": lambda: thin @ square,
        "std rows": lambda: torch.std(wide, -1),
        "upsample": lambda: functional.interpolate(small, scale_factor=2.0),
    }


def _fresh_calls(size: str) -> dict[str, Call]:
    import torch
    from torch.nn import functional

    random = _random
    s, n = _SIZES[size], _EDGE[size]
    x, y = random(s * 131072, dtype="float16"), random(s * 65536)
    smooth, squares = torch.empty_like(x), torch.empty_like(y)
    tokens, weight = random(s * 64, 1024, dtype="bfloat16"), random(1024, dtype="bfloat16")
    best = random(s * 64, 768)
    table, numbers = random(s * 256, 256), torch.randint(s * 256, (s * 128,), device="cuda")
    sums, places = torch.zeros(s * 64, 512, device="cuda"), torch.randint(512, (s * 64, 256), device="cuda")
    more = random(s * 64, 256)
    images, filters = random(max(1, s // 4), 64, 28, 28, dtype="float16"), random(128, 64, 3, 3, dtype="float16")
    lefts, rights = random(8, n // 2, n // 2, dtype="bfloat16"), random(8, n // 2, n // 2, dtype="bfloat16")
    products = torch.empty_like(lefts)
    query = random(max(1, s // 8), 4, 512, 64, dtype="float16")
    swapped = random(s * 16, 64, 4, 32)
    return {
        "silu f16": lambda: torch.ops.aten.silu.out(x, out=smooth),
        "mul": lambda: torch.mul(y, y, out=squares),
        "rms_norm": lambda: functional.rms_norm(tokens, (1024,), weight),
        "max rows": lambda: torch.max(best, -1),
        "index": lambda: table[numbers],
        "scatter_add": lambda: sums.scatter_add_(1, places, more),
        "conv f16": lambda: functional.conv2d(images, filters, padding=1),
        "bmm bf16": lambda: torch.bmm(lefts, rights, out=products),
        "attention": lambda: functional.scaled_dot_product_attention(query, query, query, is_causal=True),
        "contiguous": lambda: swapped.transpose(1, 2).contiguous(),
    }


_SETS = {
    "first": _calls,
    "apart": _calls,
    "more": _more_calls,
    "last": _last_calls,
    "new": _new_calls,
    "fresh": _fresh_calls,
}


def _ms(calls: Sequence[Call], counts: Sequence[int]) -> float:
    """Returns the median time in ms of a CUDA graph with a branch for each call. A branch has its
    call as often as `counts` says.
    """
    import torch

    main, other = torch.cuda.Stream(), torch.cuda.Stream()
    for stream in (main, other):
        with torch.cuda.stream(stream):
            for call in calls:
                call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=main):
        if len(calls) > 1:
            other.wait_stream(main)
            with torch.cuda.stream(other):
                for _ in range(counts[1]):
                    calls[1]()
        for _ in range(counts[0]):
            calls[0]()
        if len(calls) > 1:
            main.wait_stream(other)
    graph.replay()
    times = []
    for _ in range(7):
        torch.cuda._sleep(200_000)
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return float(statistics.median(times))


if __name__ == "__main__":
    sys.exit(main())
