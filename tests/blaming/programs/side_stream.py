import torch

table = torch.randn(1000, 64, device="cuda")
ballast = torch.randn(4096, 4096, device="cuda")
side = torch.cuda.Stream()
ready = torch.cuda.Event()
for step in range(20):
    index = torch.arange(64, device="cuda") + 60 * step
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        rows = table.index_select(0, index)  # the fault
        norms = rows.norm(dim=-1)
        ready.record()
    for _ in range(3):
        ballast = ballast @ ballast / 64
    torch.cuda.current_stream().wait_event(ready)
    total = norms.sum() + ballast.sum()
print(total.item())
