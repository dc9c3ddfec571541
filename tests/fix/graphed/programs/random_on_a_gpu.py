"""Runs random programs on the GPU that there is, as they are and served by graphs: `random_on_a_gpu.py SEED COUNT`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from fix.graphed.random_programs import Program, programs
from fix.graphed.side_by_side import difference
from hypothesis import HealthCheck, Phase, given, seed, settings

import unstall

_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"shapes": "bucket"},
    {"streams": 1},
    {"max_graphs": 1},
    {"verify": False, "streams": 2},
)
served = 0


def compare(program: Program, place: int) -> None:
    global served
    gc.collect()  # and not while the virtual GPU is being simulated
    found, stats = difference(program, lambda plain: unstall.graphed(plain, **_OPTIONS[place % len(_OPTIONS)]), "cuda")
    served += stats.hits > 0
    assert not found, f"{_OPTIONS[place % len(_OPTIONS)]}\n{found}\n{stats}\n{program.text()}"


def main(first: int, count: int) -> None:
    gc.disable()
    torch.set_num_threads(1)
    for turn in range(0, count, 100):

        @seed(first + turn)
        @settings(
            max_examples=min(100, count - turn),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(program=programs())
        def each(program: Program) -> None:
            compare(program, turn // 100)  # noqa: B023 - it is called within the turn

        each()
    print(f"SERVED {served}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
