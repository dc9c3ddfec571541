"""Steps of optimizers, as their defaults and as one kernel."""

from collections.abc import Callable

import torch
from torch import nn

from cases import normal

OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop")
VARIANTS = {
    "default": {},
    "foreach": {"foreach": True},
    "single": {"foreach": False},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
    "wd": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9},
    "amsgrad": {"amsgrad": True},
    "fusedams": {"fused": True, "amsgrad": True},
    "fusedmom": {"fused": True, "momentum": 0.9},
    "capfused": {"capturable": True, "fused": True},
}


def steps(name: str, options: dict) -> Callable[[], None]:
    def run() -> None:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("cuda")
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)
        for _ in range(2):
            optimizer.zero_grad()
            model(normal(3, 8)).square().mean().backward()
            optimizer.step()

    return run


def scaled(fused: bool, dtype: torch.dtype, clip: bool) -> Callable[[], None]:
    def run() -> None:
        model = nn.Linear(8, 4).to("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), **({"fused": True} if fused else {}))
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype):
                loss = model(normal(3, 8)).square().mean()
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return run


def cases() -> dict[str, Callable[[], None]]:
    found = {
        f"optim/{name}/{variant}": steps(name, options) for name in OPTIMIZERS for variant, options in VARIANTS.items()
    }
    found["amp/scaler"] = scaled(False, torch.float16, True)
    found["amp/fused"] = scaled(True, torch.bfloat16, False)
    return found
