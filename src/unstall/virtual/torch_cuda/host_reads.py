"""Reads of pinned memory that are no operators: their races would not be seen."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any


def log_host_reads(torch: ModuleType, shim: Any) -> None:
    """`Tensor.tolist` reads at once. `Tensor.numpy` reads nothing yet: what it gives may be used once a copy ended."""
    tolist = torch.Tensor.tolist

    @functools.wraps(tolist)
    def logged(self: Any) -> Any:
        if isinstance(self, torch.Tensor) and self.device.type == "cpu":
            shim.host_reads(self, "Tensor.tolist")
        return tolist(self)

    torch.Tensor.tolist = logged
