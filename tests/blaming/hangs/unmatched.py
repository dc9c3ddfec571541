import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(rank, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    weight = torch.ones(64, device=DEVICE)
    for step in range(5):
        gradient = weight * (rank + step)
        if rank == 0 or step != 3:
            dist.all_reduce(gradient)  # the hang
        else:
            print("now", flush=True)
            time.sleep(1000)  # never joins
        weight = weight - 0.1 * gradient
    print(weight.sum().item())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (f"{folder}/meeting",), nprocs=2)
