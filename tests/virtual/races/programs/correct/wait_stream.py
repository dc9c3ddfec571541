"""Work is handed to a side stream and back, each time with a wait."""

import torch

side = torch.cuda.Stream()
noise = torch.empty(1 << 16, device="cuda")
for _ in range(3):
    noise.normal_()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = noise.sum()
    torch.cuda.current_stream().wait_stream(side)
print(total.item() == total.item())
