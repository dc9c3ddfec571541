"""The thread blocks of the kernels of a profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unstall.virtual.costs.launches import launches
from unstall.virtual.costs.occupancy import Block, Launch


class _Profile:
    """Stands for a profile of a GPU, of which a profiler writes a trace."""

    def export_chrome_trace(self, path: str) -> None:
        events = [
            {"ph": "X", "cat": "cpu_op", "name": "kernel", "args": {"correlation": 3, "grid": [1], "block": [1]}},
            {"ph": "X", "cat": "kernel", "name": "of an older profiler", "args": {"correlation": 4}},
            {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "args": {"correlation": 5, "bytes": 4}},
            {
                "ph": "X",
                "cat": "kernel",
                "name": "add",
                "args": {
                    "correlation": 7,
                    "grid": [4, 3, 2],
                    "block": [32, 4, 1],
                    "registers per thread": 40,
                    "shared memory": 512,
                    "blocks per SM": 0.5,
                },
            },
            {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        ]
        Path(path).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


def test_each_kernel_has_its_blocks_by_its_correlation_id() -> None:
    profile: Any = _Profile()

    assert launches(profile) == {7: Launch(24, Block(128, 40, 512))}
