import torch

table = torch.randn(1000, 16, device="cuda")
for step in range(20):
    ids = torch.full((64,), 1000 if step == 13 else 7, device="cuda")
    rows = torch.nn.functional.embedding(ids, table)  # the fault
    torch.cuda.synchronize()
    total = rows.sum()
print(total.item())
