"""Two pinned buffers and two of the device take turns; events say when each may be filled again."""

import torch

copies = torch.cuda.Stream()
pinned = torch.empty(2, 1 << 16, pin_memory=True)
buffers = torch.empty(2, 1 << 16, device="cuda")
filled = [torch.cuda.Event(), torch.cuda.Event()]
read = [torch.cuda.Event(), torch.cuda.Event()]
total = torch.zeros((), device="cuda")
for step in range(8):
    turn = step % 2
    filled[turn].synchronize()
    pinned[turn].fill_(step)
    with torch.cuda.stream(copies):
        copies.wait_event(read[turn])
        buffers[turn].copy_(pinned[turn], non_blocking=True)
        filled[turn].record()
    torch.cuda.current_stream().wait_event(filled[turn])
    total += buffers[turn].sum()
    read[turn].record()
print(total.item())
