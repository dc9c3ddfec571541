"""`Counts`: what one test did on the GPU, and how pytest's reports carry it between processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

PREFIX = "unstall_"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a test did, and what became of its limits.

    Attributes:
        gpu: The GPU and the version of torch; "" if the test used none.
        launches: How often it put work on a GPU: a kernel, a graph, a copy or a memset. None if that is not known.
        syncs: How often the CPU waited for the GPU, without growths of torch's cache. None if not known.
        reserved_bytes: The peak of reserved memory, of the GPU with the highest one. None if not known.
        lines: How often each line waited, by "FILE:LINE CODE".
        broken: The markers whose limits it exceeds.
        unchecked: The markers whose limits cannot be checked, since there is no GPU.
    """

    gpu: str = ""
    launches: int | None = None
    syncs: int | None = None
    reserved_bytes: int | None = None
    lines: dict[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def used_gpu(self) -> bool:
        return bool(self.launches or self.syncs)

    @property
    def is_unseen(self) -> bool:
        """Whether the test uses torch, and there is no GPU."""
        return self.launches is None and not self.gpu

    def properties(self) -> list[tuple[str, object]]:
        """Returns them as properties of a report, as they stand in JUnit XML too."""
        texts = {
            "gpu": self.gpu,
            "launches": self.launches,
            "syncs": self.syncs,
            "reserved_bytes": self.reserved_bytes,
            "lines": json.dumps(self.lines) if self.lines else "",
            "broken": "; ".join(self.broken),
            "unchecked": "; ".join(self.unchecked),
        }
        return [(PREFIX + name, value) for name, value in texts.items() if value not in ("", None)]


def from_properties(properties: Sequence[tuple[str, object]]) -> Counts:
    """Returns the counts of a report."""
    values = {name.removeprefix(PREFIX): value for name, value in properties if name.startswith(PREFIX)}

    def count(name: str) -> int | None:
        value = values.get(name)
        return value if isinstance(value, int) else None

    def texts(name: str) -> tuple[str, ...]:
        return tuple(filter(None, str(values.get(name, "")).split("; ")))

    return Counts(
        gpu=str(values.get("gpu", "")),
        launches=count("launches"),
        syncs=count("syncs"),
        reserved_bytes=count("reserved_bytes"),
        lines=json.loads(str(values.get("lines", "{}"))),
        broken=texts("broken"),
        unchecked=texts("unchecked"),
    )
