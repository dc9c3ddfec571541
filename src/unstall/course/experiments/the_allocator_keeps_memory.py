"""PyTorch keeps the memory of tensors that are gone, and cuts new tensors out of it.

Tensors of 32, 16 and 48 MiB are made in functions, so each is gone when its function returns.
"""

import torch

MIB = 1024**2


def make(columns):
    torch.empty(4096, columns, device="cuda").fill_(1.0)  # gone at the end of this line


def reserved():
    return torch.cuda.memory_reserved()


make(2048)
print(f"reserved after 4096x2048: {reserved():,} bytes")
free, total = torch.cuda.mem_get_info()
print(f"used on the device, as nvidia-smi counts: {(total - free) / MIB:.1f} MiB")  # with CUDA's own memory
make(1024)
print(f"after 4096x1024: {reserved() / MIB:.1f} MiB")  # it fits into what is kept
make(2048)
make(3072)
print(f"after 4096x3072: {reserved() / MIB:.1f} MiB")  # too large for what is kept: another segment

# %% The statistics of the allocator count all of this.
stats = torch.cuda.memory_stats()
print(f"active.all.allocated: {stats['active.all.allocated']}")
print(f"active.all.peak: {stats['active.all.peak']}")
print(f"reserved_bytes.all.current: {stats['reserved_bytes.all.current']:,} bytes")

# %% Warm up with the largest: then everything else fits into its memory.
torch.cuda.empty_cache()
print(f"after empty_cache: {reserved():,} bytes")
for columns in (3072, 2048, 1024):
    make(columns)
print(f"largest first: {reserved() / MIB:.1f} MiB")
