"""Whether CPU programs read under `--host mixed` what they read without a virtual GPU, times the host's scale that is
shown: `python -m benchmarks.host_mixed [--gpu t4]`.

Processes with and without a virtual GPU in turn, several times; the quickest of each is compared, since others may use
the machine too. Each snippet is timed by `timeit`, as a user would.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import timeit
from collections.abc import Callable
from typing import Any

ROUNDS = 5
AT_LEAST_S = 0.01
WITHIN = 0.2


def snippets() -> dict[str, Callable[[], Any]]:
    import numpy as np
    import torch

    torch.set_num_threads(1)
    rows, five = torch.randn(10_000, 64), torch.ones(5)
    matrix, large = torch.randn(256, 256), torch.randn(4 << 20)
    net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    array = np.random.default_rng(0).standard_normal((400, 400))

    def training() -> None:
        net.zero_grad()
        net(matrix).sum().backward()

    return {
        "x.mul(x).sum(-1), 10000 x 64": lambda: rows.mul(rows).sum(-1),
        "bmm of the same": lambda: torch.bmm(rows.view(-1, 1, 64), rows.view(-1, 64, 1)),
        "x + x, 5 elements": lambda: five + five,
        "product, 256 x 256": lambda: matrix @ matrix,
        "exp, 16 MiB": lambda: large.exp(),
        "a step of training": training,
        "numpy: product, 400 x 400": lambda: array @ array,
        "numpy: sort": lambda: np.sort(array),
        "Python: sum of 10,000 squares": lambda: sum(number * number for number in range(10_000)),
    }


def measured() -> dict[str, float]:
    """Returns the µs of a call by `timeit`, for each snippet; and the host's scale, if this process
    has a virtual GPU.
    """
    found: dict[str, float] = {}
    for name, act in snippets().items():
        timer = timeit.Timer(act)
        act()
        count = 1
        while timer.timeit(count) < AT_LEAST_S:
            count *= 2
        found[name] = min(timer.repeat(25, count)) / count * 1e6
    return found


def child(gpu: str) -> None:
    if not gpu:
        print(json.dumps({"scale": 1.0} | measured()))
        return
    from unstall.virtual.entry import virtual_gpu
    from unstall.virtual.machine import current

    with virtual_gpu(gpu, host="mixed"):
        found = measured()
    machine = current()
    assert machine is not None
    assert machine.simulator is not None
    print(json.dumps({"scale": machine.simulator.simulation.clock.scale} | found))


def run(gpu: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.host_mixed", "--child", gpu]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="t4")
    parser.add_argument("--child", nargs="?", const="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        child(args.child)
        return
    plain: dict[str, float] = {}
    mixed: dict[str, float] = {}
    scales: list[float] = []
    for number in range(ROUNDS):
        here, there = run(""), run(args.gpu)
        scales.append(there["scale"])
        for name in here:
            plain[name] = min(plain.get(name, float("inf")), here[name])
            # A reading over its own run's scale: that is what it must agree with.
            mixed[name] = min(mixed.get(name, float("inf")), there[name] / there["scale"])
        with contextlib.suppress(BrokenPipeError):
            print(f"round {number + 1} of {ROUNDS}: scale {there['scale']:g}", file=sys.stderr, flush=True)
    print(f"scales: {', '.join(f'{scale:g}' for scale in scales)}")
    print(f"{'':32s}{'without, µs':>14s}{'mixed / scale':>16s}{'ratio':>8s}")
    worst = 0.0
    for name in plain:
        if name == "scale":
            continue
        ratio = mixed[name] / plain[name]
        worst = max(worst, abs(ratio - 1))
        print(f"{name:32s}{plain[name]:14.2f}{mixed[name]:16.2f}{ratio:8.2f}")
    print(f"worst: {worst:.0%} (wanted: within {WITHIN:.0%})")


if __name__ == "__main__":
    main()
