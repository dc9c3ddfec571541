"""A list keeps the results of all steps, until the memory that the program may use is full."""

import sys

import torch

MIB = 1 << 20


def bytes_of(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")  # HELPER


torch.cuda.set_per_process_memory_fraction(0.001)  # of 139.8 GiB: 143 MiB
weights = bytes_of(40)
freed = bytes_of(20)
del freed
torch.cuda.empty_cache()
kept = []
try:
    for _ in range(20):
        kept += [torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")]  # KEPT
except torch.OutOfMemoryError:
    if "caught" not in sys.argv:
        raise
print(len(kept))
