"""Events order three streams; the host asks one until it has come, and reads then."""

import torch

first, second, third = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
written, added, copied = torch.cuda.Event(), torch.cuda.Event(), torch.cuda.Event()
with torch.cuda.stream(first):
    x = torch.ones(1 << 16, device="cuda")
    written.record()
with torch.cuda.stream(second):
    second.wait_event(written)
    x += 1
    added.record()
with torch.cuda.stream(third):
    added.wait()
    host = torch.empty(1 << 16, pin_memory=True)
    host.copy_(x, non_blocking=True)
    copied.record()
while not copied.query():
    pass
print(host.sum().item())
