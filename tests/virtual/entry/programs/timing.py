"""Each step is timed by a stopwatch of unstall's, and ends with a wait of the program's own."""

import torch

import unstall

weights = torch.randn(1024, 1024, device="cuda")
for _ in range(6):
    with unstall.Stopwatch(show=False):
        for _ in range(3):
            product = weights @ weights
    torch.cuda.synchronize()
    unstall.step()
