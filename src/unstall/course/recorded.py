"""The figures that experiments showed earlier, on virtual GPUs and on real ones. `benchmarks/course.py` writes them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from unstall.decoding import from_json

FILE = Path(__file__).with_name("recorded.json")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of all rows on one GPU.

    Attributes:
        device: The model name of the GPU, such as "NVIDIA H100 80GB HBM3".
        virtual: Whether the GPU is a virtual one.
        torch: The version of torch.
        date: The day, such as "2025-01-31".
        figures: By the name of a row, its figures by their labels, as its script printed them.
        problems: By the name of a row, why its script failed, or which checks do not hold.
    """

    device: str
    virtual: bool
    torch: str
    date: str
    figures: dict[str, dict[str, str]]
    problems: dict[str, list[str]] = {}


def recorded() -> dict[str, Recorded]:
    """Returns the recorded figures by the short name of the GPU: "t4", "h200", "h100"."""
    return from_json(FILE.read_bytes(), dict[str, Recorded]) if FILE.exists() else {}


def heading(name: str, of: Recorded) -> str:
    """Returns the heading of a GPU's figures, such as "T4 (virtual)"."""
    return f"{name.upper()} ({'virtual' if of.virtual else 'real'})"
