"""A loop that the device is behind, by graphs or with batches fetched ahead; its timeline goes into a file."""

import sys

import unstall

path, *how = sys.argv[1:]
with unstall.virtual_gpu("h200") as gpu:
    import torch

    weights = torch.ones(1024, 1024, device="cuda")

    def forward(batch):
        for _ in range(11):
            batch = batch @ weights
        return batch.sum()

    if "graphed" in how:
        forward = unstall.graphed(forward)
    batches = [torch.ones(64, 1024) for _ in range(40)]
    for batch in unstall.prefetch(batches) if "prefetched" in how else batches:
        forward(batch if batch.is_cuda else batch.to("cuda"))
        unstall.step()
    torch.cuda.synchronize()
gpu.timeline().save(path)
