"""Inputs that grow, step by step. Each is larger than every segment that is kept, so each needs a new one.

In the worst case, reserved memory grows with the square of the number of steps. A first step with the largest input
avoids that: all later inputs fit into its memory. So do segments that can grow.
"""

import os
import random
import subprocess
import sys

import torch

MIB = 2**20


def step(size):
    torch.empty(size * 16 * MIB, dtype=torch.uint8, device="cuda")  # gone after this line


def reserved_after(sizes):
    torch.cuda.empty_cache()
    for size in sizes:
        step(size)
    return torch.cuda.memory_reserved() / MIB


print(f"largest input: {20 * 16} MiB")
print(f"10 growing steps, reserved: {reserved_after(range(1, 11)):.0f} MiB")
print(f"20 growing steps, reserved: {reserved_after(range(1, 21)):.0f} MiB")
random.seed(1)
print(f"20 steps in random order, reserved: {reserved_after(random.sample(range(1, 21), 20)):.0f} MiB")
padded = [-(-size // 5) * 5 for size in range(1, 21)]  # 5, 10, 15 or 20
print(f"20 growing steps, padded to 4 lengths, reserved: {reserved_after(padded):.0f} MiB")
print(f"20 steps, the largest first, reserved: {reserved_after([20, *range(1, 21)]):.0f} MiB")

# %% The allocator reads its settings before it begins, so this is another process.
growing = """
import torch
for size in range(1, 21):
    torch.empty(size * 2**24, dtype=torch.uint8, device="cuda")
print(f"20 growing steps, expandable segments, reserved: {torch.cuda.memory_reserved() >> 20} MiB")
"""
settings = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
done = subprocess.run([sys.executable, "-c", growing], env=settings, stdout=subprocess.PIPE, text=True, check=True)
print(done.stdout, end="")
