"""A job with a straggler: rank 2 loads its batches more slowly, and the other ranks wait for it in their all-reduces.

torchrun --nproc-per-node 4 -m unstall run --gpu h200:4 examples/ddp_straggler.py
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STRAGGLER, LATE_S = 2, 0.004
STEPS, BATCH, WIDTH, LAYERS = 12, 64, 512, 6


def load(rank: int) -> torch.Tensor:
    if rank == STRAGGLER:
        time.sleep(LATE_S)
    return torch.randn(BATCH, WIDTH, device="cuda")


def main() -> None:
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), bucket_cap_mb=2)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(STEPS):
        batch = load(rank)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
