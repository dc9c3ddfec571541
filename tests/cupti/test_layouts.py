"""Layouts of CUPTI's records: which versions are known, and how long their records are."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.cupti import layouts
from unstall.cupti.decode import record_types, rows
from unstall.cupti.layouts import Kind, UnknownLayoutError
from unstall.errors import UnstallError

# From cupti_activity.h of each: version, library, and bytes of a kernel's, a copy's and a memset's record.
_KNOWN = [
    (17, "libcupti.so.11.7", 176, 88, 88),
    (18, "libcupti.so.11.8", 200, 88, 88),
    (18, "libcupti.so.12", 208, 88, 88),
    (20, "libcupti.so.12", 208, 88, 88),
    (21, "libcupti.so.12", 208, 88, 88),
    (24, "libcupti.so.12", 208, 88, 88),
    (26, "libcupti.so.12", 208, 96, 88),
    (28, "libcupti.so.12", 208, 96, 88),
    (130000, "libcupti.so.13", 216, 96, 88),
    (130200, "libcupti.so.13", 224, 96, 88),
    (130300, "libcupti.so.13", 232, 96, 88),
    (130500, "libcupti.so.13", 248, 112, 104),
]


@pytest.mark.parametrize(("version", "library", "kernel", "copy", "memset"), _KNOWN)
def test_the_version_tells_how_long_records_are(
    version: int, library: str, kernel: int, copy: int, memset: int
) -> None:
    found = layouts.sizes(version, library)
    assert (found[Kind.KERNEL], found[Kind.MEMCPY], found[Kind.MEMSET]) == (kernel, copy, memset)
    table = np.frombuffer(layouts.size_table(found), np.uint32)
    assert {number: size for number, size in enumerate(table.tolist()) if size} == {int(k): v for k, v in found.items()}
    assert len(table) == layouts.MOST_KINDS


@pytest.mark.parametrize("version", [0, 16, 25, 29, 129999, 130600, 140000])
def test_an_unknown_version_is_refused_by_its_number(version: int) -> None:
    with pytest.raises(UnknownLayoutError) as raised:
        layouts.sizes(version, "libcupti.so")
    assert isinstance(raised.value, UnstallError)
    assert str(raised.value).startswith(f"CUPTI {version} writes records in a layout that this version of unstall does")
    assert "--recorder torch" in str(raised.value)


@pytest.mark.parametrize(("version", "library"), [known[:2] for known in _KNOWN])
def test_fields_lie_within_their_record_and_beside_each_other(version: int, library: str) -> None:
    for kind, type_ in record_types(layouts.sizes(version, library)).items():
        taken = np.zeros(type_.itemsize, np.int64)
        for field, offset, *_ in (type_.fields or {}).values():
            taken[offset : offset + field.itemsize] += 1
        assert taken[:4].max() == 0, f"{kind.name}: its kind comes first"
        assert taken.max() == 1, f"{kind.name}: two fields share a byte"


def test_rows_of_a_kind_are_picked_by_offset() -> None:
    of_kind = layouts.sizes(130000)
    size, copy = of_kind[Kind.MEMSET], of_kind[Kind.MEMCPY]
    chunk = np.zeros(2 * size + copy, np.uint8)
    for number, at, kind in ((5, 0, Kind.MEMSET), (6, size, Kind.MEMCPY), (7, size + copy, Kind.MEMSET)):
        chunk[at] = kind
        chunk[at + 8] = number  # bytes
    offsets = np.array([0, size, size + copy])
    assert rows(chunk, offsets, Kind.MEMSET, of_kind)["bytes"].tolist() == [5, 7]
    assert rows(chunk, offsets, Kind.MEMCPY, of_kind)["bytes"].tolist() == [6]
    assert len(rows(chunk, offsets, Kind.KERNEL, of_kind)) == 0
    assert len(rows(chunk, offsets[:0], Kind.KERNEL, of_kind)) == 0
