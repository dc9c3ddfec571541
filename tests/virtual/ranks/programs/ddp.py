"""DistributedDataParallel over NCCL: its gradients, and those of one process with the data of all ranks. The rank that
the second argument names sleeps 200 ms in the last backward pass.
"""

import sys
import time

from virtual.ranks.programs.rank import RANK, WORLD, run

SLEEPER = int(sys.argv[2])


def work() -> dict[str, object]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

    def data(rank: int) -> torch.Tensor:
        return torch.randn(8, 16, generator=torch.Generator().manual_seed(rank))

    ours = DistributedDataParallel(model().cuda(), bucket_cap_mb=0.001)
    sleeps = [False]

    def sleep(_: torch.Tensor) -> None:
        if sleeps[0] and RANK == SLEEPER:
            time.sleep(0.2)

    ours.module[0].weight.register_hook(sleep)
    for step in range(3):
        sleeps[0] = step == 2
        ours.zero_grad()
        ours(data(RANK).cuda()).square().mean().backward()
    alone = model()
    alone(torch.cat([data(rank) for rank in range(WORLD)])).square().mean().backward()
    pairs = zip(ours.module.parameters(), alone.parameters(), strict=True)
    return {"off": max(float((here.grad.cpu() - there.grad).abs().max()) for here, there in pairs)}


run(work)
