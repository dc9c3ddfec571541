"""The bytes of losses: of torch's, a mean or a sum keeps those of the losses of the elements."""

import json

import torch
from torch.nn import functional

found = {}
for name in (
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "l1_loss",
    "binary_cross_entropy",
    "soft_margin_loss",
    "kl_div",
):
    for reduction in ("mean", "sum", "none"):
        torch.cuda.empty_cache()
        given = torch.full((1000, 1000), 0.5, device="cuda", requires_grad=True)
        wanted = torch.full((1000, 1000), 0.25, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loss = getattr(functional, name)(given, wanted, reduction=reduction)
        after = torch.cuda.memory_allocated() - before
        loss.sum().backward()
        found[f"{name} {reduction}"] = after, torch.cuda.max_memory_allocated() - before
        del given, wanted, loss
print(json.dumps(found))
