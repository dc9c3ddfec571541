"""The baseline: its file, what changes it, and what is an increase."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.testing.baseline import Figures, read
from unstall.testing.counts_of_test import CountsOfTest, from_properties
from unstall.testing.totals import Change, Totals, total

FILE = """\
# unstall baseline: virtual h200, torch 2.13.0+cpu
launches=214 syncs=3 reserved=20MiB  tests/test_a.py::test_x[a b]
launches=2 syncs=0 reserved=2MiB  tests/test_a.py::test_y
"""
X, Y, Z = "tests/test_a.py::test_x[a b]", "tests/test_a.py::test_y", "tests/test_b.py::test_z"
GPU = "virtual h200, torch 2.13.0+cpu"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "baseline.txt"
    path.write_text(FILE)
    return path


def counts(launches: int | None, syncs: int | None, mib: int, **more: Any) -> CountsOfTest:
    return CountsOfTest(GPU, launches, syncs, mib << 20, **more)


def ended(file: Path, tests: dict[str, CountsOfTest], *, fails: bool = False, outcome: str = "passed") -> Totals:
    reports = [
        SimpleNamespace(nodeid=test, outcome=outcome, user_properties=each.properties()) for test, each in tests.items()
    ]
    return total(cast("list[pytest.TestReport]", reports), read(file, fails=fails))


def test_a_run_that_changes_nothing_leaves_the_file_byte_for_byte(file: Path) -> None:
    ended(file, {Y: counts(2, 0, 2), X: counts(214, 3, 20)})
    assert file.read_text() == FILE


def test_tests_that_ran_are_updated_and_others_stay(file: Path) -> None:
    ended(file, {Z: counts(1, 1, 4), Y: counts(3, 0, 2)})
    assert file.read_text() == FILE.replace("launches=2 ", "launches=3 ") + f"launches=1 syncs=1 reserved=4MiB  {Z}\n"


def test_a_test_that_no_longer_uses_the_gpu_is_left_out(file: Path) -> None:
    ended(file, {Y: counts(0, 0, 2)})
    assert file.read_text() == "".join(FILE.splitlines(keepends=True)[:2])


def test_a_test_that_failed_keeps_its_line(file: Path) -> None:
    ended(file, {Y: counts(9, 9, 9)}, outcome="failed")
    assert file.read_text() == FILE


def test_a_figure_that_cannot_be_counted_keeps_that_of_the_file(file: Path) -> None:
    totals = ended(file, {Y: counts(None, 0, 3)})
    assert file.read_text() == FILE.replace("reserved=2MiB", "reserved=3MiB")
    assert totals.changes == [Change(Y, "higher", "reserved 2 MiB -> 3 MiB"), Change(Y, "not compared", "launches")]


def test_figures_of_two_gpus_do_not_get_into_one_file(file: Path) -> None:
    totals = ended(file, {Y: replace(counts(3, 0, 2), gpu="virtual l4, torch 2.13.0+cpu")})
    assert (file.read_text(), totals.is_error) == (FILE, True)
    assert totals.problem == (
        "not updated: it is of virtual h200, torch 2.13.0+cpu, this run is of virtual l4, torch 2.13.0+cpu, and 1 test "
        "in it did not run or pass: delete it and run all tests"
    )


def test_a_run_of_all_tests_may_be_of_another_gpu(file: Path) -> None:
    ended(file, {test: replace(counts(3, 0, 2), gpu="virtual l4") for test in (X, Y)})
    assert file.read_text().startswith("# unstall baseline: virtual l4\n")


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_without_a_gpu_is_an_error_if_increases_fail(file: Path, fails: bool) -> None:
    assert ended(file, {Y: CountsOfTest(gpu="", launches=None, syncs=0)}, fails=fails).is_error is fails


def test_a_run_without_a_gpu_changes_nothing_and_says_so(file: Path) -> None:
    totals = ended(file, {Y: CountsOfTest(gpu="", launches=None, syncs=0)})
    assert (file.read_text(), totals.problem) == (
        FILE,
        "there is no GPU here to compare with: use --unstall-gpu h200",
    )


def test_if_increases_fail_the_file_is_not_written(file: Path) -> None:
    totals = ended(file, {X: counts(210, 3, 20), Y: counts(2, 0, 2), Z: counts(1, 0, 2)}, fails=True)
    assert file.read_text() == FILE
    assert totals.changes == [Change(X, "lower", "launches 214 -> 210"), Change(Z, "new")]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (counts(214, 3, 20), []),
        (counts(1, 1, 1), []),
        (counts(215, 2, 20), ["launches 214 -> 215"]),
        (counts(300, 5, 22), ["launches 214 -> 300, syncs 3 -> 5, reserved 20 MiB -> 22 MiB"]),
        (counts(None, 4, 20), ["syncs 3 -> 4", "launches cannot be compared: not counted here"]),
        (counts(None, None, 20), ["launches and syncs cannot be compared: not counted here"]),
    ],
)
def test_what_is_an_increase(file: Path, now: CountsOfTest, told: list[str]) -> None:
    found = read(file, fails=True).increases(X, now, [])
    assert [
        each.text.removeprefix("--fail-on-increase: ").removeprefix("more than baseline.txt says: ") for each in found
    ] == told


def test_a_test_that_is_not_in_the_file_has_not_increased(file: Path) -> None:
    assert read(file, fails=True).increases(Z, counts(9, 9, 9), []) == []


@pytest.mark.parametrize(
    "line",
    [
        "<<<<<<< HEAD",
        "launches=2 syncs=0 reserved=2MiB tests/test_a.py::one_space",
        "launches=2 waits=0  tests/test_a.py::test_q",
        "launches=-2  tests/test_a.py::test_q",
        "  tests/test_a.py::test_q",
        f"launches=2 syncs=0 reserved=2MiB  {Y}",
    ],
)
def test_a_broken_file_is_refused_with_its_line(file: Path, line: str) -> None:
    file.write_text(FILE + line + "\n")
    with pytest.raises(pytest.UsageError, match=r"baseline\.txt:4: "):
        read(file, fails=False)


def test_a_file_that_must_exist_is_missed(tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError, match="there is no "):
        read(tmp_path / "none.txt", fails=True)
    assert read(tmp_path / "none.txt", fails=False).figures == {}


def test_increases_need_a_baseline() -> None:
    with pytest.raises(pytest.UsageError, match="--unstall-baseline FILE"):
        read("", fails=True)


_FIGURES = st.builds(
    Figures,
    st.one_of(st.none(), st.integers(0, 10**12)),
    st.integers(0, 10**6),
    st.one_of(st.none(), st.integers(0, 10**9)),
)
_IDS = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp", "Zs")), min_size=1)


@given(st.dictionaries(_IDS, _FIGURES, max_size=5))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, figures: dict[str, Figures]) -> None:
    path = tmp_path_factory.mktemp("written") / "baseline.txt"
    read(path, fails=False).write(GPU, figures)
    assert (read(path, fails=True).figures, read(path, fails=True).gpu) == (figures, GPU)


@given(
    st.builds(
        CountsOfTest,
        st.sampled_from(["", GPU]),
        st.one_of(st.none(), st.integers(0)),
        st.one_of(st.none(), st.integers(0)),
        st.one_of(st.none(), st.integers(0)),
        st.dictionaries(st.text(), st.integers(1), max_size=2),
        st.sampled_from([(), ("no_sync",), ("limit_syncs(2)", 'limit_device_memory("2 GB")')]),
        st.sampled_from([(), ("no_sync",)]),
    )
)
def test_a_report_carries_all_counts(counts: CountsOfTest) -> None:
    assert from_properties([("other", 3), *counts.properties()]) == counts
