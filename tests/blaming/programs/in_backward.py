import torch

weight = torch.randn(64, 1000, device="cuda", requires_grad=True)
ballast = torch.randn(4096, 4096, device="cuda")
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(20):
    index = torch.randint(0, 1000, (64, 8), device="cuda")
    for _ in range(3):
        ballast = ballast @ ballast / 64
    scores = weight.log_softmax(-1)
    picked = scores.gather(1, index)  # its forward
    loss = -picked.mean()
    if step == 11:
        index.data.add_(1000)
    optimizer.zero_grad()
    loss.backward()  # the fault
    optimizer.step()
print(weight.sum().item())
