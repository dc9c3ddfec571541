"""Two streams fill one buffer: what is in it afterwards depends on which was later."""

import torch

first, second = torch.cuda.Stream(), torch.cuda.Stream()
buffer = torch.zeros(1 << 16, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(first):
    buffer.fill_(1)  # race: first
with torch.cuda.stream(second):
    buffer.fill_(2)  # race: second
torch.cuda.synchronize()
print(buffer[0].item() > 0)
