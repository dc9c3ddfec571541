"""A training over NCCL in which one rank is slower than the others, for one cause after another: a trace of each.

    planted.py FOLDER JOB GPU CAUSE …

JOB is ddp, fsdp, pipeline (GPipe) or 1f1b. A cause is "none", or one that a comment below names; "clocks" is planted by
GPU, a value of --gpu. A job of "balanced" has the layers of "layers", but as many in each stage. Each trace is
FOLDER/CAUSE/rankR.trace.json.gz. Tensors have shapes and no values.

A first training without a cause and a trace runs Python code that is not in the host's caches yet: the first steps of
all others then take as long.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import unstall

FOLDER, JOB, GPU, CAUSES = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SLOW = 3 if WORLD > 4 else 1
STEPS, LAYERS, TOKENS, WIDTH, PARTS = 8, 4, 8192, 2048, 8


def main() -> None:
    for number, cause in enumerate(("none", *CAUSES)):
        with unstall.virtual_gpu(GPU, numerics="skip", warm=True) as gpu:
            import torch
            import torch.distributed as dist

            if number == 0:
                torch.cuda.set_device(RANK)
                dist.init_process_group("nccl")
            train_pipeline(cause) if JOB in ("pipeline", "1f1b") else train(cause)
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
        if number:
            folder = FOLDER / cause
            folder.mkdir(parents=True, exist_ok=True)
            gpu.save(folder / f"rank{RANK}.trace.json.gz")
    dist.destroy_process_group()


def train(cause: str) -> None:
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, IterableDataset

    planted = cause if RANK == SLOW else "none"

    class Tokens(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            for number in range(STEPS):
                if planted == "loader":
                    time.sleep(0.04)  # PLANTED loader
                yield number

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(WIDTH, 4 * WIDTH, device="cuda", dtype=torch.bfloat16)
            self.down = torch.nn.Linear(4 * WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(x)))  # PLANTED sequence
            return y

    def stall(_: torch.Tensor) -> None:
        time.sleep(0.2)  # PLANTED backward

    blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
    model: torch.nn.Module
    if JOB == "fsdp":
        for block in blocks:
            fully_shard(block)
        model = fully_shard(blocks)
    else:
        model = DistributedDataParallel(blocks, bucket_cap_mb=64)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = TOKENS * 3 // 2 if planted == "sequence" else TOKENS
    for _ in DataLoader(Tokens(), batch_size=None):
        batch = torch.randn(tokens, WIDTH, device="cuda", dtype=torch.bfloat16)
        optimizer.zero_grad()
        out = model(batch)
        if planted == "item":
            for row in out[:200]:
                row.sum().item()  # PLANTED item
        if planted == "backward":
            out.register_hook(stall)
        out.square().mean().backward()  # PLANTED clocks
        optimizer.step()


def train_pipeline(cause: str) -> None:
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    layers = LAYERS * (2 if cause == "layers" and RANK == SLOW else 1) + (cause == "balanced")
    width = 4 * WIDTH
    mine = torch.nn.Sequential(
        *(torch.nn.Linear(width, width, device="cuda", dtype=torch.bfloat16) for _ in range(layers))
    )
    stage = PipelineStage(mine, RANK, WORLD, torch.device("cuda", RANK))
    kind = Schedule1F1B if JOB == "1f1b" else ScheduleGPipe
    schedule = kind(stage, PARTS, loss_fn=lambda out, target: (out - target).square().mean())
    optimizer = torch.optim.AdamW(mine.parameters(), fused=True)
    batch, target = (torch.randn(TOKENS, width, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    inputs = (batch,) if RANK == 0 else ()
    targets = {"target": target} if RANK == WORLD - 1 else {}
    for _ in range(STEPS):
        if cause == "loader" and RANK == SLOW:
            time.sleep(0.04)  # PLANTED stage
        optimizer.zero_grad()
        schedule.step(*inputs, **targets)  # PLANTED layers
        optimizer.step()


main()
