"""Products of matrices at sizes that no program chose, on a real GPU and as the virtual one predicts them.

    python -m benchmarks.products --out real.json        # on a GPU: half of 3,000 products
    python -m benchmarks.products --against real.json    # anywhere

Sizes are random, a half of those of linear layers have the widths of ordinary nets. What an H200 took is
benchmarks/results/products_h200.json. The other half of the 3,000, and 10,000 more of which most have such widths, are
in the virtual GPU's file; these are not.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped
from unstall.virtual.costs import measure
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides
from unstall.virtual.costs.suite.random_products import Product, products

_COUNT, _SEED = 3_000, 7
_WITHIN = 0.1, 0.15, 0.35


def judged() -> list[Product]:
    """Returns the half of the products that is not in the virtual GPU's file."""
    chosen = list(products(_COUNT, _SEED))
    order = list(range(len(chosen)))
    random.Random(1).shuffle(order)
    return [chosen[at] for at in sorted(order[len(order) // 2 :])]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="measures, and writes what was measured to this file")
    parser.add_argument("--against", type=Path, help="compares what such a file has with the virtual GPU")
    parser.add_argument("--gpu", default="h200", help="the virtual GPU, or a file of one (default: h200)")
    args = parser.parse_args(argv)
    if args.against:
        _compare(json.loads(args.against.read_text()), args.gpu)
    if args.out and (skipped := why_skipped()):
        print(skipped)
    elif args.out:
        args.out.write_text(json.dumps(measured_on() | {"products": _measured()}) + "\n")
    return 0


def _measured() -> list[list[object]]:
    """Returns a row for each product: its attributes, and the ns of its kernels, out of the cache but for the factor
    that the operator before has written.
    """
    of_case = {id(case): (case, each) for each in judged() for case in [each.case()]}
    found: list[list[object]] = []
    for observations in measure.measure([case for case, _ in of_case.values()], time.monotonic() + 300):
        for seen in observations:
            _, each = of_case[id(seen.case)]
            ns = sum(kernel.ns for kernel in seen.kernels)
            found.append([each.operator, each.dtype, each.precision, each.layout, list(each.sizes), ns])
    return found


def _signature(product: Product) -> Signature:
    left, right, out = product.specs()
    factors = [_spec(product.dtype, sizes, way) for sizes, way in zip((left, right), product.layout, strict=True)]
    bias = [_spec(product.dtype, (product.sizes[2],), "n")] if product.operator == "addmm" else []
    result = _spec(product.dtype, out, "n")
    return Signature(f"aten::{product.operator}", "", (*bias, *factors), (result,), product.precision)


def _spec(dtype: str, sizes: tuple[int, ...], layout: str) -> TensorSpec:
    strides = contiguous_strides(sizes)
    if layout == "t":
        strides = (*strides[:-2], 1, sizes[-2])
    return TensorSpec(dtype, sizes, strides)


def _compare(real: dict[str, Any], gpu: str) -> None:
    costs = costs_of(gpu)
    ratios: dict[str, list[float]] = defaultdict(list)
    for operator, dtype, precision, layout, sizes, ns in real["products"]:
        product = Product(operator, dtype, precision, layout, tuple(sizes))
        ratio = sum(kernel.duration_ns for kernel in costs.cost(_signature(product)).kernels) / ns
        long = "up to 10 us" if ns <= 10_000 else "up to 100 us" if ns <= 100_000 else "over 100 us"
        for kind in ("all", precision or dtype, operator, long):
            ratios[kind].append(ratio)
    for kind, found in ratios.items():
        off = [abs(math.log(each)) for each in found]
        shares = [f"{most:.0%}: {sum(each <= math.log(1 + most) for each in off) / len(off):.0%}" for most in _WITHIN]
        print(
            f"{kind:12} {len(off):5} products, off by {math.exp(statistics.median(off)) - 1:.1%} in the median, "
            f"here / real {statistics.median(found):.2f}, within {', '.join(shares)}"
        )


if __name__ == "__main__":
    sys.exit(main())
