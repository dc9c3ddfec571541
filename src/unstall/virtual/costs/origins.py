"""Says where each part of the file of a GPU comes from, and how wrong it is if that is known."""

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
"""The name of a part of the file of a GPU. It stands for these fields of the file:

- "memory": `total_bytes` and `context_bytes` of `device`.
- "properties": the other fields of `device`.
- "float32 rate", "half rate", "float64 rate", "memory rate" and "L2 rate": `peaks`.
- "kernel times": `tables`, and `floor_ns` of `peaks`.
- "kernel names": `kernels`.
- "copies" and "memsets": the fields of these names.
- "latencies": `limits`.
- "links": `links`, and NCCL's model of them.
- "workspaces": `workspaces`.
- "CPU operators": `cores`, the rates of the CPU, and `page` of `host`.
- "host calls": the other fields of `host`, and `operators_host_ns`.
- "first uses": `startup`.
"""
PARTS: tuple[Part, ...] = get_args(Part)

Kind = Literal["measured", "published", "data sheet", "scaled", "same", "assumed"]
"""How the figures of a part came about:

- "measured": they were measured on a GPU.
- "published": other people published them.
- "data sheet": they are in the data sheet of the GPU.
- "scaled": they are those of another GPU, scaled by the rates of both.
- "same": they are those of another GPU, unchanged.
- "assumed": they are an assumption, such as the speed of a link.
"""


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a part of the file of a GPU comes from.

    Attributes:
        kind: How the figures of the part came about.
        of: The details: on what they were measured, who published them, or which GPU they belong to
            and how they were scaled.
        known_error: How wrong they were, compared with known figures; None if they were not
            compared.
    """

    kind: Kind
    of: str
    known_error: str | None = None
