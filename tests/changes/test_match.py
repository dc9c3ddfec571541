"""Which place of one run is which of the other."""

from __future__ import annotations

import zlib

from changes.runs import compared
from hypothesis import given
from hypothesis import strategies as st
from traces import TraceBuilder

from unstall.changes.match import ComparedPlace, pairs_of_files, pairs_of_places
from unstall.report.diff import both_places
from unstall.result import Where


def _place(
    file: str, line: int, function: str = "forward", *does: str, program: bool = False, text: str = ""
) -> ComparedPlace:
    where = Where(file=file, line=line, line_is="def", function=function)
    return ComparedPlace(where, frozenset(does), of_program=program, digest=zlib.crc32(text.encode()) if text else -1)


def _lines(*texts: str, first: int = 1, function: str = "train") -> list[ComparedPlace]:
    """The lines of a function in their order. Each launches the same kernel, so only the text tells them apart."""
    return [_place("train.py", first + i, function, "gemm", text=text) for i, text in enumerate(texts) if text]


def test_lines_below_an_inserted_comment_are_the_same_lines() -> None:
    a = _lines("x = x.cuda()", "y = net(x)", "y.item()")
    b = _lines("", "x = x.cuda()", "y = net(x)", "y.item()")
    assert pairs_of_places(a, b) == [(0, 0), (1, 1), (2, 2)]


def test_a_line_between_known_ones_stays_itself_if_its_variable_is_renamed_and_two_lines_are_new() -> None:
    a = _lines("x = x.cuda()", "y = net(x)", "y.item()")
    b = _lines("a()", "b()", "x = x.cuda()", "out = net(x)", "y.item()")
    assert pairs_of_places(a, b) == [(0, 2), (1, 3), (2, 4)]


def test_of_two_lines_that_do_the_same_the_one_with_the_text_is_matched() -> None:
    assert pairs_of_places(_lines("a.item()", "b.item()"), _lines("b.item()")) == [(1, 0)]


def test_lines_of_a_function_that_was_moved_and_renamed_are_found_by_their_text() -> None:
    a = [*_lines("x.cuda()", "y.item()", first=10, function="step"), *_lines("save()", first=30, function="main")]
    b = [*_lines("save()", first=10, function="main"), *_lines("x.cuda()", "y.item()", first=50, function="one_step")]
    assert pairs_of_places(a, b) == [(0, 1), (1, 2), (2, 0)]


def test_without_text_lines_are_told_by_what_they_do_in_their_order() -> None:
    a = [_place("net.py", 10, "f", "gemm"), _place("net.py", 11, "f", "relu"), _place("net.py", 12, "f", "gemm")]
    b = [_place("net.py", 11, "f", "gemm"), _place("net.py", 12, "f", "relu"), _place("net.py", 13, "f", "gemm")]
    assert pairs_of_places(a, b) == [(0, 0), (1, 1), (2, 2)]


def test_without_text_a_line_of_the_same_number_goes_before_another_that_does_the_same() -> None:
    a = [_place("net.py", 10, "f", "gemm"), _place("net.py", 12, "f", "gemm")]
    assert pairs_of_places(a, a[1:]) == [(1, 0)]


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


def _loop(*texts: str) -> TraceBuilder:
    """A recording of a loop: each line launches a kernel, unless its text is empty."""
    digests = {"train.py": {str(line): zlib.crc32(text.encode()) for line, text in enumerate(texts, 10) if text}}
    about = {"schema": "unstall.recording/1", "recorder": "cupti", "lines": "exact", "digests": digests}
    trace = TraceBuilder(operators=False, unstall=about)
    for number in range(4):
        with trace.annotation(f"unstall.step#{number}"):
            for line, text in enumerate(texts, 10):
                if text:
                    with trace.frame("train.py", line, "train"):
                        trace.launch("gemm", 900 if text == "y = net(x)" else 300)
    return trace


def test_a_report_names_the_line_now_and_as_it_was_and_no_line_that_only_moved() -> None:
    before = _loop("y = net(x)", "loss(y)", "save(y)")
    moved = compared(before, _loop("", "", "y = net(x)", "loss(y)", "save(y)"))
    assert moved.empty
    assert moved.unchanged.lines == 3
    changed = compared(before, _loop("", "", "out = net(x)", "loss(y)", "save(y)"))
    (line,) = changed.lines
    assert (line.status, line.device_ns.a, line.device_ns.b) == ("changed", 900_000, 300_000)
    assert both_places(line.where_a, line.where_b) == "train.py:12 (was 10) in train"


_PLACES = st.lists(
    st.builds(
        _place,
        st.sampled_from(["net.py", "/a/net.py", "/b/net.py", "/b/train.py"]),
        st.integers(1, 5),
        st.sampled_from(["forward", "step"]),
        st.sampled_from(["aten::mm", "aten::relu"]),
        program=st.booleans(),
        text=st.sampled_from(["", "x = net(x)", "x.item()"]),
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
