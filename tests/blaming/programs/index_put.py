import torch

memory = torch.zeros(512, 64, device="cuda")
ballast = torch.randn(4096, 4096, device="cuda")
for step in range(12):
    values = torch.randn(16, 64, device="cuda")
    rows = torch.arange(16, device="cuda") + 50 * step
    for _ in range(3):
        ballast = ballast @ ballast / 64
    memory[rows] = values  # the fault
    norm = memory.norm(dim=-1)
    best = norm.topk(4).values
print(best.tolist())
