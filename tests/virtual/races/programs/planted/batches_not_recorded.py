"""Batches are copied ahead on a stream that takes back their memory before the default stream has read them."""

import torch

copies = torch.cuda.Stream()
source = torch.ones(10 << 20).pin_memory()
total = torch.zeros((), device="cuda")
copies.wait_stream(torch.cuda.current_stream())
for _ in range(3):
    with torch.cuda.stream(copies):
        batch = source.to("cuda", non_blocking=True)  # race: second
    torch.cuda.current_stream().wait_stream(copies)
    total += batch.sum()  # race: first
    del batch
torch.cuda.synchronize()
print(total.item() >= 0)
