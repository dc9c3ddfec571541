"""Times what the host computes: operators on the CPU, and NumPy."""

import time

import numpy as np
import torch

torch.set_num_threads(1)
x, array = torch.ones(10_000, 64), np.ones((500, 500))
x.mul(x).sum(-1)
start = time.perf_counter_ns()
for _ in range(10):
    x.mul(x).sum(-1)
operators = time.perf_counter_ns() - start
start = time.perf_counter_ns()
for _ in range(20):
    array = array @ array / 500
products = time.perf_counter_ns() - start
torch.ones(3, device="cuda").sum().item()
print(operators, products)
