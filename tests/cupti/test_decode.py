"""What the recorder `cupti` leaves, whole or cut off anywhere, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from recording.folders import CHUNK, LIBRARY, SPAN, VERSION, activity_record, call_record, chunks, name_record

from unstall.cupti import layouts
from unstall.cupti.decode import Activity, read_activity, record_types
from unstall.cupti.layouts import Kind, UnknownLayoutError
from unstall.errors import TraceError

pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)

_VERSIONS = [17, 18, 20, 21, 24, 28, 130000, 130100, 130300, 130500]


def _read(
    folder: Path,
    activity: bytes = b"",
    calls: bytes = b"",
    names: bytes = b"",
    version: int = VERSION,
    library: str = LIBRARY,
) -> Activity:
    (folder / "cupti.json").write_text(json.dumps({"version": version, "library": library}))
    for name, data in (("activity.bin", activity), ("calls.bin", calls), ("names.bin", names)):
        (folder / name).write_bytes(data)
    return read_activity(folder)


def _rows(kind: Kind, count: int, seed: int) -> np.ndarray:
    """Records with every byte of every field drawn."""
    type_ = record_types(layouts.sizes(VERSION))[kind]
    drawn = np.random.default_rng(seed).integers(0, 256, count * type_.itemsize, np.uint8)
    return drawn.view(type_)


@examples(20)
@given(
    version=st.sampled_from(_VERSIONS),
    library=st.sampled_from(["libcupti.so.11.8", "libcupti.so.12"]),
    kinds=st.lists(st.lists(st.sampled_from(list(Kind)), max_size=30), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
)
def test_what_was_written_is_read_back(version: int, library: str, kinds: list[list[Kind]], seed: int) -> None:
    drawn = {kind: iter(_rows(kind, 100, seed)) for kind in Kind}
    written: dict[Kind, list[dict[str, object]]] = {kind: [] for kind in Kind}
    held = []
    for chunk in kinds:
        records = b""
        for kind in chunk:
            row = next(drawn[kind])
            fields = {name: row[name].tolist() for name in row.dtype.names}
            written[kind].append(fields)
            records += activity_record(kind, fields, version, library)
        held.append(records)
    with TemporaryDirectory() as folder:
        activity = _read(Path(folder), chunks(*held), version=version, library=library)
    assert activity.cupti_version == version
    for kind, table in activity.tables.items():
        names = table.dtype.names or ()
        assert [{name: row[name].tolist() for name in names} for row in table] == written[kind]


def _memset(start: int) -> bytes:
    return activity_record(Kind.MEMSET, {"start": start})


def _starts(activity: Activity) -> list[int]:
    starts: list[int] = activity.tables[Kind.MEMSET]["start"].tolist()
    return starts


def test_a_chunk_ends_at_its_first_kind_of_0(tmp_path: Path) -> None:
    hole = bytes(88)
    activity = _read(tmp_path, chunks(_memset(1) + _memset(2) + hole + _memset(3), b"", _memset(4)))
    assert _starts(activity) == [1, 2, 4]


@pytest.mark.parametrize("kind", [3, 63, 64, 2**32 - 1])
def test_a_record_of_a_kind_without_a_size_ends_its_chunk(kind: int, tmp_path: Path) -> None:
    strange = kind.to_bytes(4, "little") + bytes(84)
    activity = _read(tmp_path, chunks(_memset(1) + strange + _memset(2), _memset(3)))
    assert _starts(activity) == [1, 3]


@pytest.mark.parametrize("cut", [1, 4, 87])
def test_a_record_that_is_cut_off_is_left_out(cut: int, tmp_path: Path) -> None:
    assert _starts(_read(tmp_path, chunks(_memset(1)) + _memset(2) + _memset(3)[:cut])) == [1, 2]


def test_a_record_that_would_reach_beyond_its_chunk_is_none(tmp_path: Path) -> None:
    full = (CHUNK // 88) * 88
    chunk = b"".join(_memset(number + 1) for number in range(CHUNK // 88)) + _memset(0)[: CHUNK - full]
    starts = _starts(_read(tmp_path, chunk + chunks(_memset(7))))
    assert (len(starts), starts[-2:]) == (full // 88 + 1, [full // 88, 7])


def test_an_unknown_version_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownLayoutError, match="CUPTI 990000 writes records in a layout that this version"):
        _read(tmp_path, version=990000)


def test_nothing_at_all_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nothing was recorded: CUPTI had not begun"):
        read_activity(tmp_path)
    (tmp_path / "cupti.json").write_text('{"versi')
    with pytest.raises(TraceError, match="nothing was recorded: CUPTI had not begun"):
        read_activity(tmp_path)


@pytest.mark.parametrize("name", ["activity.bin", "calls.bin", "names.bin"])
def test_a_file_that_somebody_removed_is_named(name: str, tmp_path: Path) -> None:
    _read(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(TraceError, match=f"{name}: gone"):
        read_activity(tmp_path)


def test_files_without_a_record_are_empty_tables(tmp_path: Path) -> None:
    activity = _read(tmp_path)
    assert [len(table) for table in activity.tables.values()] == [0] * len(Kind)
    assert (len(activity.calls), len(activity.spans), activity.names) == (0, 0, {})
    assert activity.tables[Kind.KERNEL]["grid"].shape == (0, 3)


def test_calls_are_by_thread_and_start_without_the_zeros_behind_them(tmp_path: Path) -> None:
    first = call_record("cuLaunchKernel", 30, 40, thread=2, stack=5, correlation=9)
    first += call_record("cuEventRecord", 10, 20, thread=2, event=2**63 + 1, stream=7, context=3)
    second = call_record("cuStreamSynchronize", 15, 16, thread=1) + call_record(SPAN + 1, 5, 50, thread=2, stack=4)
    activity = _read(tmp_path, calls=chunks(first, second, size=64 << 10))
    calls = activity.calls
    assert (calls["start"].tolist(), calls["end"].tolist()) == ([15, 10, 30], [16, 20, 40])
    assert (calls["thread"].tolist(), calls["what"].tolist()) == ([1, 2, 2], [126, 119, 307])
    assert (calls["stack"].tolist(), calls["correlation"].tolist()) == ([-1, -1, 5], [0, 0, 9])
    assert (calls["event"].tolist(), calls["stream"].tolist()) == ([0, 2**63 + 1, 0], [2**32 - 1, 7, 2**32 - 1])
    assert calls["context"].tolist() == [1, 3, 1]
    assert [(span["what"], span["start"], span["end"], span["stack"]) for span in activity.spans] == [(1, 5, 50, 4)]


def test_a_call_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    calls = call_record("cuLaunchKernel", 1, 2) + call_record("cuLaunchKernel", 3, 4)
    assert _read(tmp_path, calls=calls[:-1]).calls["start"].tolist() == [1]


_NAMES = name_record(1, b"first") + name_record(2, b"second")


@pytest.mark.parametrize(
    ("names", "read"),
    [
        (_NAMES, {1: "first", 2: "second"}),
        (_NAMES[:-1], {1: "first"}),
        (_NAMES[: len(_NAMES) - 6 - 1], {1: "first"}),
        (_NAMES[:11], {}),
        (name_record(1, b"") + name_record(2, b"x"), {1: "", 2: "x"}),
        (name_record(1, b"\xff<\xc3"), {1: "\ufffd<\ufffd"}),
        (name_record(1, b"k" * (1 << 16)), {1: "k" * (1 << 16)}),
        (name_record(1, b"a") + name_record(2, b"k" * ((1 << 16) + 1)) + name_record(3, b"b"), {1: "a"}),
    ],
)
def test_names_are_read_up_to_the_first_that_is_cut_off(names: bytes, read: dict[int, str], tmp_path: Path) -> None:
    assert _read(tmp_path, names=names).names == read
