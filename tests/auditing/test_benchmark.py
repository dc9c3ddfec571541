"""benchmarks/audit.py: what counts as found, and the committed table."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.audit import RESULTS, compared, markdown, read, score, waits_by_line
from unstall.auditing.result import Figures, Found
from unstall.result import Where


def _row(**waits: float) -> dict[str, Any]:
    named = {name.replace("_", ":"): times for name, times in waits.items()}
    return {
        "waits": named,
        "step_ns": 1_000,
        "launches": 1.0,
        "copies": 0.0,
        "idle": 0.5,
        "mended_ns": 500,
        "took_s": 4.0,
    }


_FAILED: dict[str, Any] = {"failed": "ImportError: scipy"}


def test_a_wait_is_found_as_often_as_both_lines_wait() -> None:
    found = score({"a": _row(x_1=9, x_2=1)}, {"a": _row(x_1=10, x_3=1)})
    assert found.both == 9
    assert found.recall == pytest.approx(9 / 11)
    assert found.precision == pytest.approx(9 / 10)


def test_lines_count_once_however_often_they_wait() -> None:
    found = score({"a": _row(x_1=9, x_2=1)}, {"a": _row(x_1=10, x_3=1)}, lines=True)
    assert (found.recall, found.precision) == (0.5, 0.5)


def test_what_ran_on_the_real_gpu_alone_is_missed() -> None:
    real = {"a": _row(x_1=1), "b": _row(x_1=3)}
    found = score({"a": _row(x_1=1), "b": _FAILED}, real)
    assert (found.recall, found.precision) == (0.25, 1.0)
    assert "b: all missed: ImportError: scipy" in list(compared({"a": _row(x_1=1), "b": _FAILED}, real))


def test_what_did_not_run_on_the_real_gpu_is_named_and_counts_in_neither() -> None:
    virtual, real = {"a": _row(x_1=1), "b": _row(x_1=3)}, {"a": _row(x_1=1), "b": _FAILED}
    assert (score(virtual, real).recall, score(virtual, real).precision) == (1.0, 1.0)
    assert any(line.startswith("b: not compared") for line in compared(virtual, real))


def test_every_difference_is_told() -> None:
    lines = list(compared({"a": _row(x_1=9)}, {"a": _row(x_1=10, x_3=1)}))
    assert lines[-2:] == ["a: x:1: 10 real, 9 virtual", "a: x:3: 1 real, 0 virtual"]


def test_lines_of_packages_are_named_from_the_package_on() -> None:
    def wait(file: str) -> Found:
        where = Where(file=file, line=3)
        return Found(
            rule="sync-item",
            title="",
            where=where,
            per_step=1.5,
            is_wait=True,
            wait_ns=1,
            gain_ns=0,
            fix="",
            safe_if="",
        )

    figures = Figures(
        device=None,
        torch=None,
        steps=2,
        launches=1,
        copies=1,
        step_ns=1,
        mended_ns=1,
        idle=0.0,
        bound_by="host",
        findings=(wait("/venv/lib/python3.11/site-packages/diffusers/x.py"), wait("diffusers/x.py")),
    )
    assert waits_by_line(figures) == {"diffusers/x.py:3": 3.0}


def test_the_committed_table_has_sixty_entries_of_diffusers_that_ran_in_a_minute_each() -> None:
    table = read(RESULTS / "audit_virtual.json")
    ran = [row for row in table.values() if "failed" not in row]
    assert len(ran) >= 60
    assert max(row["took_s"] for row in ran) <= 60
    assert markdown(table) in (RESULTS / "audit_virtual.md").read_text()
