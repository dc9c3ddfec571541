"""Tells where each part of a GPU's file comes from, and the part's error, if known."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Part = Literal[
    "properties",
    "memory",
    "float32 rate",
    "half rate",
    "float64 rate",
    "memory rate",
    "L2 rate",
    "kernel times",
    "kernel names",
    "copies",
    "memsets",
    "latencies",
    "links",
    "workspaces",
    "host calls",
    "CPU operators",
    "first uses",
]
"""The name of a part of a GPU's file. The parts consist of these fields of the file:

- "memory": `total_bytes` and `context_bytes` of `device`.
- "properties": the other fields of `device`.
- "float32 rate", "half rate", "float64 rate", "memory rate" and "L2 rate": `peaks`.
- "kernel times": `tables`, and `floor_ns`.
- "kernel names": `kernels`.
- "latencies": `limits`.
- "links": `links`, and NCCL's model of the links.
- "CPU operators": `cores`, the CPU rates and `page` of `host`.
- "host calls": the other fields of `host`, and `operators_host_ns`.
- "first uses": `startup`.
"""
PARTS: tuple[Part, ...] = get_args(Part)

Kind = Literal["measured", "published", "data sheet", "scaled", "same", "assumed"]
"""The source of a part's figures:

- "measured": a measurement on a GPU.
- "published": figures that other people published.
- "data sheet": the data sheet of the GPU.
- "scaled": the figures of a different GPU, scaled by the rates of both GPUs.
- "same": the figures of a different GPU, unchanged.
- "assumed": an assumption, such as the speed of a link.
"""


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a part comes from.

    Attributes:
        kind: The source of the part's figures.
        of: The details of the source: what the part was measured on, who published the figures, or which GPU the
            figures belong to and how they were scaled.
        known_error: The error of the part in comparisons with known values, or None if no comparison was made.
    """

    kind: Kind
    of: str
    known_error: str | None = None
