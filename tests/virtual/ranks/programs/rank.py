"""One rank of a job on virtual H200s: what it does, its timeline in the file that it is given, its facts on stdout."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import unstall

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def run(work: Callable[[], dict[str, object]]) -> None:
    """Runs `work` after the ranks have met, and tells what it returns."""
    with unstall.virtual_gpu(f"h200:{WORLD}") as gpu:
        import torch
        import torch.distributed as dist

        torch.cuda.set_device(RANK)
        dist.init_process_group("nccl")
        told = work()
        torch.cuda.synchronize()
        dist.destroy_process_group()
    gpu.timeline().save(Path(sys.argv[1]))
    print(json.dumps(told), flush=True)
