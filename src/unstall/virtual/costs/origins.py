"""Where each part of a GPU's file comes from, and how far off it is known to be."""

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
    "workspaces",
    "host calls",
    "CPU operators",
    "first uses",
]
"""A part of a file. Of `device`: "memory" is `total_bytes` and `context_bytes`, "properties" the rest. The rates are
`peaks`. Kernels' times are `tables` and `floor_ns`, their names `kernels`. "latencies" is `limits`. Of `host`: "CPU
operators" is `cores`, the rates and pages; "host calls" is the rest, with `operators_host_ns`. "first uses" is
`startup`.
"""
PARTS: tuple[Part, ...] = get_args(Part)

Kind = Literal["measured", "published", "data sheet", "scaled", "same", "assumed"]
"""How a part is known: measured on a GPU; a figure that others published; the data sheet of the GPU; another GPU's,
scaled by the rates of both; another GPU's, unchanged; or an assumption, such as the speed of a link.
"""


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a part comes from.

    Attributes:
        kind: How the part is known.
        of: On what it was measured, whose figure it is, or which GPU's, and how it was scaled.
        known_error: How far off it is where the truth is known, or None if it was compared with nothing.
    """

    kind: Kind
    of: str
    known_error: str | None = None
