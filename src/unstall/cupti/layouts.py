"""The sizes of CUPTI's activity records, and the offsets of their fields. The sizes depend on the
version of CUPTI's API.

The numbers come from `cupti_activity.h` of CUDA 11.7 to 13.5. Each version only added fields at the
end of a record. So the offsets are the same in all these versions, and only the sizes differ. The
sizes of later versions are unknown, and are not guessed.

Recorders import this module into the recorded program, so this module imports almost nothing.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from unstall.errors import UnstallError


class Kind(IntEnum):
    """The kinds of CUPTI's activity records (CUpti_ActivityKind) that unstall records."""

    MEMCPY = 1
    MEMSET = 2
    KERNEL = 10  # concurrent kernels
    OVERHEAD = 17
    MEMCPY_PEER = 22


MOST_KINDS = 64
_DEVICE_OP = {"start": (16, "u8"), "end": (24, "u8")}
_WHERE = {"device": (32, "u4"), "context": (36, "u4"), "stream": (40, "u4")}
_COPY = {"bytes": (8, "u8"), **_DEVICE_OP, **_WHERE, "direction": (4, "u1"), "source": (5, "u1"), "target": (6, "u1")}
FIELDS: dict[Kind, dict[str, tuple[int, str]]] = {
    Kind.MEMCPY: {**_COPY, "correlation": (44, "u4"), "graph": (72, "u4")},
    Kind.MEMCPY_PEER: {**_COPY, "correlation": (60, "u4"), "graph": (80, "u4")},
    Kind.MEMSET: {"bytes": (8, "u8"), **_DEVICE_OP, **_WHERE, "correlation": (44, "u4"), "graph": (72, "u4")},
    Kind.KERNEL: {
        **_DEVICE_OP,
        "device": (40, "u4"),
        "context": (44, "u4"),
        "stream": (48, "u4"),
        "grid": (52, "3i4"),
        "block": (64, "3i4"),
        "registers": (6, "u2"),
        "static_shared": (76, "i4"),
        "dynamic_shared": (80, "i4"),
        "correlation": (92, "u4"),
        "name": (104, "u8"),
        "graph": (156, "u4"),
    },
    Kind.OVERHEAD: {"what": (4, "u4"), "start": (24, "u8"), "end": (32, "u8")},
}

# Sizes in bytes of: kernel, memcpy, peer memcpy, memset, overhead.
_SIZES: dict[tuple[int, int], tuple[int, int, int, int, int]] = {
    (17, 17): (176, 88, 96, 88, 40),  # CUDA 11.7
    (18, 20): (208, 88, 96, 88, 40),  # 12.0 to 12.2; 11.8 calls itself 18 too, see below
    (21, 21): (208, 88, 96, 88, 48),  # 12.3
    (22, 24): (208, 88, 96, 88, 56),  # 12.4 to 12.6
    (26, 28): (208, 96, 96, 88, 56),  # 12.8, 12.9
    (130000, 130099): (216, 96, 96, 88, 56),
    (130100, 130299): (224, 96, 96, 88, 56),
    (130300, 130399): (232, 96, 96, 88, 56),
    (130400, 130599): (248, 112, 96, 104, 56),
}
_CUDA_11_8 = (200, 88, 96, 88, 40)
_ORDER = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMCPY_PEER, Kind.MEMSET, Kind.OVERHEAD)


class UnknownLayoutError(UnstallError):
    """Raised when the sizes of the records of this CUPTI version are not known."""


def sizes(version: int, library: str = "") -> dict[Kind, int]:
    """Returns the size in bytes of each kind of CUPTI's records.

    Args:
        version: CUPTI's version, as `cuptiGetVersion` returns it.
        library: The file name of CUPTI's library.

    Raises:
        UnknownLayoutError: The sizes of this version are not known.
    """
    for (first, last), found in _SIZES.items():
        if first <= version <= last:
            of_kind = _CUDA_11_8 if version == 18 and ".so.11" in library else found
            return dict(zip(_ORDER, of_kind, strict=True))
    raise UnknownLayoutError(
        f"CUPTI {version} writes records in a layout that this version of unstall does not know: "
        "use --recorder torch, or a newer unstall"
    )


def size_table(of_kind: dict[Kind, int]) -> bytes:
    """Returns the sizes of records in the form that the C extension reads: an array of uint32,
    indexed by kind.

    The size is 0 for a kind that is not recorded. `of_kind` maps each recorded kind to its size in
    bytes.
    """
    table = [0] * MOST_KINDS
    for kind, size in of_kind.items():
        table[kind] = size
    return struct.pack(f"={MOST_KINDS}I", *table)
