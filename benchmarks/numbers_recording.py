"""What `recording_numbers` costs: a training step of ResNet-50, recorded and not, in turn. On a GPU.

    python -m benchmarks.numbers_recording [--batch 64] [--rounds 9] [--out FILE]

Time is that of a whole step, with a wait for the device at its end. Memory is the most that torch's allocator holds
during a step, less that of a step that is not recorded; and the growth of the process's own memory.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped

_MIB = 1 << 20


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batch", type=int, default=64, help="images of a step")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of steps")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    args = parser.parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    result = measured_on() | _measured(args.batch, args.rounds)
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _measured(batch: int, rounds: int) -> dict[str, Any]:
    import torch

    import unstall

    step = _step(batch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.numbers"

        def recorded() -> None:
            with unstall.recording_numbers(path):
                step()

        for warm_up in (step, recorded) * 3:
            warm_up()
        times: dict[Callable[[], None], list[float]] = {step: [], recorded: []}
        most: dict[Callable[[], None], list[int]] = {step: [], recorded: []}
        for _ in range(rounds):
            for each in random.sample([step, recorded], 2):
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = time.perf_counter()
                each()
                torch.cuda.synchronize()
                times[each].append(time.perf_counter() - before)
                most[each].append(torch.cuda.max_memory_allocated())
        ratios = [one / other for one, other in zip(times[recorded], times[step], strict=True)]
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(rounds):
            recorded()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        return {
            "batch": batch,
            "step_ms": statistics.median(times[step]) * 1e3,
            "ratio": statistics.median(ratios),
            "ratio_from_to": [min(ratios), max(ratios)],
            "device_mib": (max(most[recorded]) - max(most[step])) / _MIB,
            "host_growth_mib": grown * 1024 / _MIB,
            "file_mib": path.stat().st_size / _MIB,
        }


def _step(batch: int) -> Callable[[], None]:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step() -> None:
        loss = model(images, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    sys.exit(main())
