"""Which place of one run is which of the other."""

from __future__ import annotations

from changes.runs import compared
from hypothesis import given
from hypothesis import strategies as st
from traces import TraceBuilder

from unstall.changes.match import ComparedPlace, pairs_of_files, pairs_of_places
from unstall.result import Where


def _place(file: str, line: int, function: str = "forward", *operators: str, program: bool = False) -> ComparedPlace:
    where = Where(file=file, line=line, line_is="def", function=function)
    return ComparedPlace(where, frozenset(operators), of_program=program)


def test_the_same_line_goes_before_the_same_function() -> None:
    a = [_place("net.py", 10), _place("net.py", 30)]
    b = [_place("net.py", 30), _place("net.py", 50)]
    assert pairs_of_places(a, b) == [(0, 1), (1, 0)]


def test_functions_of_one_name_are_told_apart_by_their_operators() -> None:
    a = [_place("net.py", 10, "forward", "aten::mm"), _place("net.py", 30, "forward", "aten::relu")]
    b = [_place("net.py", 12, "forward", "aten::relu"), _place("net.py", 35, "forward", "aten::mm")]
    assert pairs_of_places(a, b) == [(0, 1), (1, 0)]


def test_as_many_functions_of_one_name_are_taken_in_order() -> None:
    a = [_place("net.py", 10), _place("net.py", 30)]
    b = [_place("net.py", 35), _place("net.py", 12)]
    assert pairs_of_places(a, b) == [(0, 1), (1, 0)]


def test_another_number_of_alike_functions_matches_none() -> None:
    assert pairs_of_places([_place("net.py", 10)], [_place("net.py", 12), _place("net.py", 35)]) == []


def test_files_of_two_checkouts_are_matched_by_the_end_of_their_paths() -> None:
    found = pairs_of_files(["/old/a/net.py", "/old/b/net.py"], ["/new/b/net.py", "/new/a/net.py", "/new/x.py"])
    assert found == {"/new/a/net.py": "/old/a/net.py", "/new/b/net.py": "/old/b/net.py"}


def test_the_file_that_was_run_is_the_same_one_under_another_name() -> None:
    a = [_place("train.py", line, function, program=True) for line, function in ((10, "step"), (20, "evaluate"))]
    b = [_place("pinned.py", line, function, program=True) for line, function in ((10, "step"), (25, "evaluate"))]
    assert pairs_of_places(a, b) == [(0, 0), (1, 1)]


def test_a_file_that_was_run_and_is_imported_in_the_other_run_is_itself_there() -> None:
    a = [_place("train.py", 10, program=True)]
    b = [_place("main.py", 10, program=True), _place("train.py", 10)]
    assert pairs_of_places(a, b) == [(0, 1)]


def test_waits_and_lines_of_a_copied_script_are_those_of_the_script() -> None:
    def run(file: str, wait_us: float) -> TraceBuilder:
        trace = TraceBuilder()
        with trace.frame(file, 1, "<module>"):
            for _ in range(4):
                with trace.step(), trace.frame(file, 10, "train"), trace.op("aten::item"):
                    trace.launch("gemm", wait_us)
                    trace.sync()
        return trace

    result = compared(run("train.py", 400), run("train_fast.py", 200))
    assert [(change.status, change.count.a, change.count.b) for change in result.waits] == [("changed", 1, 1)]
    assert {change.status for change in result.lines} == {"changed"}


_PLACES = st.lists(
    st.builds(
        _place,
        st.sampled_from(["net.py", "/a/net.py", "/b/net.py", "/b/train.py"]),
        st.integers(1, 5),
        st.sampled_from(["forward", "step"]),
        st.sampled_from(["aten::mm", "aten::relu"]),
        program=st.booleans(),
    ),
    unique_by=lambda place: (place.where.file, place.where.line, place.where.function),
    max_size=8,
)


@given(_PLACES, _PLACES)
def test_matching_the_other_way_gives_the_same_pairs_turned_round(
    a: list[ComparedPlace], b: list[ComparedPlace]
) -> None:
    pairs = pairs_of_places(a, b)
    assert sorted((j, i) for i, j in pairs_of_places(b, a)) == sorted(pairs)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)


@given(_PLACES)
def test_every_place_is_matched_with_itself(places: list[ComparedPlace]) -> None:
    assert pairs_of_places(places, places) == [(i, i) for i in range(len(places))]
