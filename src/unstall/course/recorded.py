"""The figures that experiments showed earlier, on virtual GPUs and on real ones.
`benchmarks/course.py` writes the file that contains them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from unstall.decoding import from_json

FILE = Path(__file__).with_name("recorded.json")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of all experiments of the course on one GPU.

    Attributes:
        device: The model name of the GPU, such as "NVIDIA H100 80GB HBM3".
        torch: The version of torch.
        date: The day, such as "2025-01-31".
        figures: Maps the name of an experiment to its figures: a dict from labels to texts, as the
            script printed them.
        seconds: Maps the name of an experiment to how many seconds its script took, the least of its runs. On a
            virtual GPU, that is the time of the simulation, on the machine that recorded it.
        printed: Maps the name of an experiment with `Row.prints` to what its script printed besides figures.
        problems: Maps the name of an experiment to the reason why its script failed, or to the
            checks that do not hold. Experiments without a problem are missing.
    """

    device: str
    torch: str
    date: str
    figures: dict[str, dict[str, str]]
    seconds: dict[str, float] = {}
    printed: dict[str, str] = {}
    problems: dict[str, list[str]] = {}


def recorded() -> dict[str, Recorded]:
    """Returns the recorded figures of the course's experiments, by `heading`."""
    return from_json(FILE.read_bytes(), dict[str, Recorded]) if FILE.exists() else {}


def heading(name: str, *, virtual: bool) -> str:
    """Returns the heading of the column with a GPU's figures, such as "T4 (virtual)".

    Args:
        name: The short name of the GPU, such as "t4".
        virtual: Whether the GPU is a virtual one.
    """
    return f"{name.upper()} ({'virtual' if virtual else 'real'})"
