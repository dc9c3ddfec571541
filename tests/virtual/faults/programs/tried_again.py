"""The memory is full, and so it is for half as much; the program then raises the first error again."""

import torch

MIB = 1 << 20

torch.cuda.set_per_process_memory_fraction(0.001)  # of 139.8 GiB: 143 MiB
kept = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
try:
    batch = torch.empty(160 * MIB, dtype=torch.uint8, device="cuda")  # FAULT
except torch.OutOfMemoryError:
    try:
        batch = torch.empty(80 * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print("half of it is too much, too")
    raise
