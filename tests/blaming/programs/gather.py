import torch

logits = torch.randn(128, 1000, device="cuda")
ballast = torch.randn(4096, 4096, device="cuda")
total = torch.zeros((), device="cuda")


def step(target):
    scores = logits.log_softmax(-1)
    picked = scores.gather(1, target)  # the fault
    return -picked.mean()


for number in range(20):
    target = torch.full((128, 1), 100 * number, device="cuda")
    for _ in range(3):
        ballast = ballast @ ballast / 64
    total += step(target)
print(float(total))
