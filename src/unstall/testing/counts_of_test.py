"""`CountsOfTest`: what one test did on the GPU. The counts travel between pytest's processes as
properties of its reports.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

_PREFIX = "unstall_"


@dataclass(frozen=True, slots=True)
class CountsOfTest:
    """What a test did on the GPU, and which of its limits it exceeded.

    Attributes:
        gpu: The GPU and the version of torch; "" if the test used no GPU.
        launches: How many kernels, graphs, copies and memsets the test launched; None if this is
            unknown.
        syncs: How often the CPU waited for the GPU; None if this is unknown. Waits in which torch's
            memory cache grew or a CUDA library started are not counted.
        reserved_bytes: The peak of reserved memory, on the GPU with the highest one; None if this
            is unknown.
        lines: How often each source line waited. A key is "FILE:LINE CODE".
        broken: The markers whose limits the test exceeded, as written in the test.
        unchecked: The markers whose limits could not be checked because there is no GPU.
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
        """Whether the test launched work or waited for the GPU, as far as that was counted."""
        return bool(self.launches or self.syncs)

    @property
    def is_unseen(self) -> bool:
        """Whether nothing could be counted: the test uses torch, and there is no GPU."""
        return self.launches is None and not self.gpu

    def properties(self) -> list[tuple[str, object]]:
        """Returns the counts as `(name, value)` pairs, which become properties of pytest's report
        of the test. pytest also writes them into JUnit XML.
        """
        values = (
            self.gpu,
            self.launches,
            self.syncs,
            self.reserved_bytes,
            json.dumps(self.lines) if self.lines else "",
            "; ".join(self.broken),
            "; ".join(self.unchecked),
        )
        return [(name, value) for name, value in zip(PROPERTIES, values, strict=True) if value not in ("", None)]


PROPERTIES = tuple(_PREFIX + field.name for field in fields(CountsOfTest))
"""The names of the properties that carry the counts, in the order of the fields of `CountsOfTest`."""


def from_properties(properties: Sequence[tuple[str, object]]) -> CountsOfTest:
    """Returns the counts that `CountsOfTest.properties` has put into the properties of pytest's report of a test."""
    values = {name.removeprefix(_PREFIX): value for name, value in properties if name in PROPERTIES}

    def count(name: str) -> int | None:
        value = values.get(name)
        return value if isinstance(value, int) else None

    def texts(name: str) -> tuple[str, ...]:
        return tuple(filter(None, str(values.get(name, "")).split("; ")))

    return CountsOfTest(
        gpu=str(values.get("gpu", "")),
        launches=count("launches"),
        syncs=count("syncs"),
        reserved_bytes=count("reserved_bytes"),
        lines=json.loads(str(values.get("lines", "{}"))),
        broken=texts("broken"),
        unchecked=texts("unchecked"),
    )
