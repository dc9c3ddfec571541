"""Which work needs which: by hand, against a plain walk over bytes, on a virtual GPU, and through a trace file."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from traces import TraceBuilder
from virtual.races.logs import Log

from unstall.read import load
from unstall.timeline.columns import Dependencies, HostKind, Timeline
from unstall.virtual.log import RECORD, USE, LogCode
from unstall.virtual.profiler.trace_file import write_trace
from unstall.virtual.races.dependencies import needs_of
from unstall.virtual.timeline.window import FOREVER, cut

Part = tuple[int, int, int, bool]  # allocation, offset, bytes, write


def _log(works: list[list[Part]], code: LogCode = LogCode.LAUNCH) -> tuple[np.ndarray, np.ndarray]:
    records = np.zeros(len(works), RECORD)
    records["code"], records["uses"] = code, [len(parts) for parts in works]
    flat = [part for parts in works for part in parts]
    uses = np.zeros(len(flat), USE)
    for name, column in zip(("allocation", "offset", "bytes", "write"), zip(*flat, strict=True), strict=False):
        uses[name] = column
    return records, uses


def _needs(works: list[list[Part]]) -> dict[tuple[int, int], int]:
    found = needs_of(*_log(works))
    return dict(zip(zip(found.earlier.tolist(), found.later.tolist(), strict=True), found.bytes.tolist(), strict=True))


def test_a_read_needs_the_last_write_of_each_byte_and_a_write_what_read_it() -> None:
    write, read, overwrite = [(1, 0, 8, True)], [(1, 0, 8, False), (2, 0, 4, True)], [(1, 4, 4, True)]
    last = [(1, 0, 8, False), (2, 0, 4, False)]

    assert _needs([write, read, overwrite, [], last]) == {
        (0, 1): 8,  # read → written
        (0, 2): 0,  # overwritten, not read
        (1, 2): 0,  # overwritten after it was read
        (0, 4): 4,
        (2, 4): 4,
        (1, 4): 4,
    }


def test_equal_addresses_of_two_allocations_are_no_dependency() -> None:
    assert _needs([[(1, 0, 8, True)], [(2, 0, 8, False)]]) == {}


def test_host_operators_are_no_work() -> None:
    records, uses = _log([[(1, 0, 8, True)], [(1, 0, 8, False)]], LogCode.OP_BEGIN)
    assert len(needs_of(records, uses).bytes) == 0


_PARTS = st.tuples(st.integers(1, 2), st.integers(0, 6), st.integers(1, 4), st.booleans())


@given(st.lists(st.lists(_PARTS, max_size=3), min_size=1, max_size=12))
def test_it_is_what_a_walk_over_each_byte_finds(works: list[list[Part]]) -> None:
    if not any(works):
        return
    written: dict[tuple[int, int], int] = {}
    readers: dict[tuple[int, int], set[int]] = defaultdict(set)
    expected: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    for number, parts in enumerate(works):
        read, wrote = ({(a, i) for a, o, n, w in parts if w is way for i in range(o, o + n)} for way in (False, True))
        for byte in read:
            if byte in written:
                expected[written[byte], number].add(byte)
            readers[byte].add(number)
        for byte in wrote:
            for earlier in (*readers[byte], *([written[byte]] if byte in written else [])):
                if earlier != number:
                    expected[earlier, number] |= set()
            written[byte] = number
            readers[byte] = set()

    found = _needs(works)
    assert set(found) == set(expected)
    for pair, needed in expected.items():
        assert (found[pair] > 0) == bool(needed)


def test_captured_work_counts_at_each_launch_of_its_graph() -> None:
    log = Log()
    log.work(5, writes=(1,))
    log.record(LogCode.CAPTURE_BEGIN, 5, a=7)
    log.work(5, reads=(1,), writes=(2,))
    log.work(5, reads=(2,), writes=(3,))
    log.record(LogCode.CAPTURE_END, 5, a=7)
    first = log.record(LogCode.GRAPH_LAUNCH, 5, a=7)
    second = log.record(LogCode.GRAPH_LAUNCH, 5, a=7)
    reader = log.work(5, reads=(3,))

    found = needs_of(log.records, log.used)
    pairs = set(zip(found.earlier.tolist(), found.later.tolist(), strict=True))
    assert pairs == {(0, first), (0, second), (first, second), (second, reader)}


def _timeline() -> Timeline:
    trace = TraceBuilder()
    for _ in range(2):
        with trace.step():
            for name in ("aten::mm", "aten::relu", "aten::sum"):
                with trace.op(name):
                    trace.launch(device_us=5)
    timeline = trace.timeline()
    ops = np.flatnonzero(timeline.host.kind == HostKind.OP).astype(np.int32)
    return replace(timeline, dependencies=Dependencies(ops[:-1], ops[1:], np.array([8, 0, 5, 7, 1 << 40])))


def _named(timeline: Timeline) -> list[tuple[str, str, int]]:
    host, needs = timeline.host, timeline.dependencies
    names = [[timeline.text(int(host.name[row])) for row in column] for column in (needs.earlier, needs.later)]
    return list(zip(*names, needs.bytes.tolist(), strict=True))


def test_a_trace_file_and_a_saved_timeline_keep_them(tmp_path: Path) -> None:
    timeline = _timeline()
    write_trace(timeline, tmp_path / "run.json.gz")
    timeline.save(tmp_path / "run.timeline")

    assert _named(timeline)[:2] == [("aten::mm", "aten::relu", 8), ("aten::relu", "aten::sum", 0)]
    assert _named(load(tmp_path / "run.json.gz")) == _named(timeline)
    assert _named(load(tmp_path / "run.timeline")) == _named(timeline)


def test_a_part_of_a_run_keeps_those_within_it() -> None:
    timeline = _timeline()
    host = timeline.host
    second = int(host.start[host.kind == HostKind.OP][3])

    assert _named(cut(timeline, second, FOREVER)) == [
        ("aten::mm", "aten::relu", 7),
        ("aten::relu", "aten::sum", 1 << 40),
    ]


@pytest.mark.parametrize("broken", [{"later": [1, 2]}, {"later": ["x"], "back": [1], "bytes": [1]}, [], None])
def test_what_a_file_says_of_them_wrongly_is_left_out(tmp_path: Path, broken: object) -> None:
    trace = TraceBuilder(unstall={"dependencies": broken})
    with trace.step(), trace.op("aten::mm"):
        trace.launch()
    assert len(load(trace.write(tmp_path / "run.json")).dependencies) == 0
