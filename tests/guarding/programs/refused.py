"""What is left of an operation that a guard refuses: nothing."""

import gc

import torch
from telling import refused, show

import unstall

x = torch.randn(256, 256, device="cuda")
mask = x > 0
pinned = torch.zeros(256, 256).pin_memory()
pageable = torch.zeros(256, 256)
large = torch.zeros(1024, 1024)
torch.empty(8 << 20, dtype=torch.uint8, device="cuda")


def state():
    gc.collect()
    return [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]


OPERATIONS = {
    "item": lambda: x.sum().item(),
    "mask": lambda: x[mask],
    "unique": lambda: x.unique(),
    "cpu": lambda: x.cpu(),
    "download": lambda: pinned.copy_(x),
    "staged download": lambda: pageable.copy_(x, non_blocking=True),
    "upload": lambda: large.to("cuda"),
    "staged upload": lambda: large.to("cuda", non_blocking=True),
    "malloc": lambda: torch.empty(64 << 20, dtype=torch.uint8, device="cuda"),
    "malloc of a result": lambda: torch.cat([x] * 128),
    "empty_cache": torch.cuda.empty_cache,
    "print": lambda: print(x),
}
left = {}
for name, operation in OPERATIONS.items():
    before = state()
    left[name] = [refused(operation) is not None, state() == before]

values = [pinned.any().item(), pageable.any().item()]
target = torch.ones(1024, 1024, device="cuda")
refused(lambda: target.copy_(large))


@unstall.no_sync("warn")
def warns_as_errors():
    import warnings

    warnings.simplefilter("error")
    torch.empty(64 << 20, dtype=torch.uint8, device="cuda")


before = state()[0]
try:
    warns_as_errors()
except unstall.SyncWarning as warning:
    warned = warning.wait.kind
show(
    left=left,
    values=values,
    target=target.min().item(),
    goes_on=x.sum().item() == x.cpu().sum().item() or abs(x.sum().item() - x.cpu().sum().item()) < 1e-1,
    warned=warned,
    freed=state()[0] - before,
)
