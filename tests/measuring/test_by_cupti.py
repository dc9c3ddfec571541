"""CUPTI's records → whose call each op is of: as `_cupti` leaves them, made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.cupti import layouts
from unstall.cupti.decode import _CALL, Activity, record_types
from unstall.cupti.few_calls import FewCalls, call_records
from unstall.cupti.layouts import Kind
from unstall.errors import UnstallError, UsageError
from unstall.guest import active, device
from unstall.lines.places import Frame
from unstall.measuring.device_time.by_cupti import ops_by_call
from unstall.measuring.device_time.device_ops import DeviceOps

SIZES = layouts.sizes(130000)
LAUNCH, SYNCHRONIZE, RECORD, WAIT, MALLOC, GRAPH = 307, 126, 119, 295, 243, 514
TIMES = np.array([[1000, 1400, 1900], [2000, 2400, 2900]], np.int64)  # begun, returned, done
FRAMES: dict[int, tuple[Frame, ...]] = {3: (("torch/nn/functional.py", 9, "gelu"), ("train.py", 41, "step"))}


def kernels(*rows: tuple[int, int, int, int, int]) -> np.ndarray:
    """Starts, ends, streams, correlations, graphs."""
    table = np.zeros(len(rows), record_types(SIZES)[Kind.KERNEL])
    for name, column in zip(("start", "end", "stream", "correlation", "graph"), zip(*rows, strict=True), strict=True):
        table[name] = column
    return table


def calls(*rows: tuple[int, int, int, int, int, int]) -> np.ndarray:
    """Starts, ends, what they are, correlations, streams, events."""
    table = np.zeros(len(rows), _CALL)
    names = ("start", "end", "what", "correlation", "stream", "event")
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        table[name] = column
    table["stack"] = 3
    return table


def observed(ops: np.ndarray, made: np.ndarray) -> DeviceOps:
    tables = {kind: np.zeros(0, type_) for kind, type_ in record_types(SIZES).items()}
    activity = Activity({**tables, Kind.KERNEL: ops}, made, made[:0], {}, 130000)
    return ops_by_call(call_records(activity, FRAMES), TIMES, 900)


MARK = (910, 920, 7, 1, 0)
MARKED = (905, 908, LAUNCH, 1, 0, 0)


def test_an_op_is_of_the_call_that_launched_it_whenever_it_ran() -> None:
    seen = observed(
        kernels(MARK, (1500, 1600, 7, 2, 0), (1990, 2050, 7, 3, 0), (2500, 2530, 7, 4, 0), (1950, 1960, 7, 5, 0)),
        calls(
            MARKED,
            (1100, 1110, LAUNCH, 2, 0, 0),
            (1300, 1310, LAUNCH, 3, 0, 0),
            (2100, 2110, LAUNCH, 4, 0, 0),
            (1940, 1945, LAUNCH, 5, 0, 0),  # between calls: the flush
        ),
    )
    assert seen.busy_ns().tolist() == [160, 30]
    assert seen.span_ns().tolist() == [550, 30]
    assert seen.ops_per_call() == 1.5
    assert seen.main_stream == 7


def test_what_no_known_call_launched_is_of_the_call_that_it_ran_in() -> None:
    seen = observed(kernels(MARK, (1500, 1600, 7, 99, 0)), calls(MARKED))
    assert seen.busy_ns().tolist() == [100, 0]


def test_waits_and_memory_of_the_driver_are_found_with_their_places() -> None:
    seen = observed(
        kernels(MARK, (1500, 1600, 7, 2, 0)),
        calls(
            MARKED,
            (1100, 1110, LAUNCH, 2, 0, 0),
            (1200, 1390, SYNCHRONIZE, 6, 7, 0),
            (1500, 1600, SYNCHRONIZE, 7, 7, 0),  # ours, after the function's return
            (2100, 2200, MALLOC, 8, 0, 0),
        ),
    )
    assert [(each.call, each.ns, each.place) for each in seen.waits] == [(0, 190, "train.py:41")]
    assert [(each.call, each.what) for each in seen.taken] == [(1, "cuMemAlloc")]


def test_a_side_stream_that_is_joined_does_not_escape() -> None:
    fork = (1050, 1051, RECORD, 6, 7, 11), (1052, 1053, WAIT, 7, 9, 11), (1100, 1110, LAUNCH, 2, 0, 0)
    ops = kernels(MARK, (1500, 1600, 9, 2, 0))
    assert observed(ops, calls(MARKED, *fork)).escaped_streams() == {9}
    join = (1200, 1201, RECORD, 8, 9, 12), (1210, 1211, WAIT, 10, 7, 12)
    assert observed(ops, calls(MARKED, *fork, *join)).escaped_streams() == set()


def test_all_ops_of_a_graph_are_of_the_call_that_launched_it() -> None:
    seen = observed(
        kernels(MARK, (1500, 1600, 7, 2, 5), (1600, 1700, 13, 2, 5)), calls(MARKED, (1100, 1110, GRAPH, 2, 0, 0))
    )
    assert seen.busy_ns().tolist() == [200, 0]
    assert seen.graph.all()
    assert seen.escaped_streams() == set()


def test_without_any_record_no_call_did_anything() -> None:
    seen = observed(kernels(MARK)[:0], calls(MARKED))
    assert seen.busy_ns().tolist() == [0, 0]


@pytest.mark.skipif(device.has_driver(), reason="needs a machine without NVIDIA's driver")
def test_where_cupti_does_not_record_no_recording_stays_active() -> None:
    with pytest.raises(UnstallError), FewCalls("measuring", stacks=True):
        pass
    assert active.current() is None


def test_while_calls_are_recorded_a_second_recording_is_refused() -> None:
    first = FewCalls("the first is under way", stacks=False)
    active.activate(first)
    try:
        with pytest.raises(UsageError, match="the first is under way"), FewCalls("the second", stacks=False):
            pass
        assert active.current() is first
    finally:
        active.deactivate(first)
