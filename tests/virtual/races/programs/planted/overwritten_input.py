"""A buffer is refilled for the next step, while a side stream may still read it for this one."""

import torch

side = torch.cuda.Stream()
buffer = torch.zeros(1 << 16, device="cuda")
total = torch.zeros((), device="cuda")
for step in range(12):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total += buffer.sum()  # race: first
    buffer.fill_(step)  # race: second
torch.cuda.synchronize()
print(total.item() >= 0)
