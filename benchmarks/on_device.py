"""What benchmarks of a GPU share: why they are skipped, and what their figures are of."""

from __future__ import annotations

import platform
import time
from importlib.util import find_spec


def why_skipped(*packages: str) -> str | None:
    """What is missing of these packages, torch and a CUDA device; None if nothing is."""
    missing = [name for name in ("torch", *packages) if find_spec(name) is None]
    if missing:
        return f"skipped: it needs {', '.join(missing)}"
    import torch

    return None if torch.cuda.is_available() else "skipped: there is no CUDA device"


def measured_on() -> dict[str, object]:
    """The device and versions that figures are of, and the day."""
    import torch

    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
