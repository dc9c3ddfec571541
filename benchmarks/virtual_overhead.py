"""What the virtual GPU adds to an operator, over the CPU that computes it: `python -m benchmarks.virtual_overhead`.

Three processes in turn, several times: torch alone, torch with the virtual GPU loaded but on tensors of the CPU, and on
tensors of the virtual GPU. The medians of what each operator took there are compared.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 5
SETTINGS = ("plain", "cpu", "virtual")


def best_us(act: Callable[[], Any], times: int) -> float:
    """Returns the processor time of a call, in µs: that of the quickest of a few runs of `times`
    calls, since others may use the machine too.
    """
    quickest = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(times):
            act()
        quickest = min(quickest, (time.process_time() - start) / times * 1e6)
    return quickest


def measured(setting: str) -> dict[str, float]:
    """Returns the µs of an addition of 5 elements, and of a training step of a small net. `setting`
    says whether there is a virtual GPU, and where the tensors are.
    """
    shim = None
    if setting != "plain":
        from unstall.virtual.shim.load import load

        shim = load()
    import torch

    torch.set_num_threads(1)
    device = "cuda" if setting == "virtual" else "cpu"
    x = torch.ones(5).to(device)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    inputs = torch.ones(8, 16).to(device)

    def step() -> None:
        optimizer.zero_grad()
        net(inputs).sum().backward()
        optimizer.step()
        if shim is not None:
            shim.take()

    def add() -> None:
        x + 1

    result = {"x + 1": best_us(add, 2000), "training step": best_us(step, 100)}
    if shim is not None:
        shim.take()
        optimizer.zero_grad()
        net(inputs).sum().backward()
        optimizer.step()
        records = shim.take()[0]
        step_records = [records[i + 56] for i in range(0, len(records), 64)]
        result["operators in a step"] = step_records.count(0)
    return result


def main() -> None:
    """Measures in several processes by turns, and prints a table of medians."""
    if len(sys.argv) > 1:
        json.dump(measured(sys.argv[1]), sys.stdout)
        return
    runs: dict[str, list[dict[str, float]]] = {setting: [] for setting in SETTINGS}
    for _ in range(ROUNDS):
        for setting in SETTINGS:
            command = [sys.executable, "-m", "benchmarks.virtual_overhead", setting]
            runs[setting].append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    operators = runs["virtual"][0]["operators in a step"]
    for name in ("x + 1", "training step"):
        plain, cpu, virtual = (statistics.median(run[name] for run in runs[setting]) for setting in SETTINGS)
        count = operators if name == "training step" else 1
        print(
            f"{name}: {plain:.2f} us on the CPU, {cpu:.2f} logged, {virtual:.2f} on the virtual GPU: "
            f"{(virtual - plain) / count:+.2f} us an operator"
        )


if __name__ == "__main__":
    main()
