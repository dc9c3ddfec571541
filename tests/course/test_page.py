"""docs/course.md and the recorded figures are of the rows that there are."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from benchmarks.course import PAGE, main, page
from unstall.course.against_author import against_author
from unstall.course.against_real import MODELLED, REAL, differences
from unstall.course.figures import figure
from unstall.course.recorded import Recorded, recorded
from unstall.course.running import checked
from unstall.course.table import table

_MUCH, _LITTLE = 3, 1.2  # times as long


def test_the_page_is_made_of_the_rows() -> None:
    """`python -m benchmarks.course --docs` writes it."""
    text = PAGE.read_text("utf-8")
    assert page(text) == text
    for name, row in table().items():
        assert f"### {row.number} {name}" in text
    for of in recorded().values():
        assert f"{of.device}, torch {of.torch}, last run on {of.date}" in text


def test_recorded_figures_are_of_rows_and_can_be_read() -> None:
    assert {"T4 (virtual)", "H200 (virtual)", "H200 (real)"} <= set(recorded())
    for of in recorded().values():
        assert set(of.figures) <= set(table())
        for figures in of.figures.values():
            for label, text in figures.items():
                assert figure(label, text).text == text


def test_the_recorded_figures_of_each_gpu_meet_the_checks() -> None:
    """What the page says holds in all of its columns. A GPU may lack figures that a script did not print yet."""
    for of in recorded().values():
        for name, figures in of.figures.items():
            read = {label: figure(label, text) for label, text in figures.items()}
            for check in table()[name].checks:
                if {check.of, check.over or check.of} <= set(read):
                    found = checked(check, read)
                    assert found.holds, f"{of.device}, {name}: {found.sentence} {found.reason}"


def test_each_figure_that_a_text_names_is_printed_and_a_recorded_one_still_is() -> None:
    t4 = recorded()["T4 (virtual)"].figures
    for name, row in table().items():
        assert set(re.findall(r"{(.+?)}", row.learn + row.mine)) <= set(t4[name])
    for of in recorded().values():
        for name, figures in of.figures.items():
            assert set(figures) <= set(t4[name]), f"{of.device}, {name}"


def test_the_texts_of_the_page_have_figures_and_no_labels() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("The figure of the "))
    for row in table().values():
        for label in re.findall(r"{(.+?)}", row.learn + row.mine):
            assert f"`{label}`" not in text
            assert "{" + label + "}" not in text


def test_each_figure_that_a_virtual_h200_and_a_real_one_give_differently_is_named() -> None:
    """If they come close again, the reason must go."""
    modelled, real = (recorded()[gpu].figures for gpu in (MODELLED, REAL))
    for name, row in table().items():
        for label in set(modelled[name]) & set(real[name]):
            values = [abs(figure(label, of[name][label]).value) for of in (modelled, real)]
            much = max(values) > _MUCH * min(values)
            assert label in {*row.differs, *row.missed} or not much, f"{name}: {label}"
            assert label not in row.differs or max(values) > _LITTLE * min(values), f"{name}: {label}"
        assert set(row.differs) <= set(modelled[name]) & set(real[name])


def test_a_reason_is_said_once_for_all_figures_that_it_is_of() -> None:
    name = "the_first_launch_loads_kernels"
    said = list(differences(name, table()[name]))
    assert len(said) == len(set(table()[name].differs.values()))
    for label in table()[name].differs:
        real = recorded()[REAL].figures[name][label]
        assert sum(f"{label} " in line and f"{real} on a real one" in line for line in said) == 1


def test_each_missed_figure_is_explained_and_nothing_else_is() -> None:
    """A row says why a figure differs from the author's; if it no longer does, the reason must go."""
    t4 = recorded()["T4 (virtual)"]
    for name, row in table().items():
        compared = list(against_author(row, t4.device, t4.figures.get(name, {})))
        assert {each.label for each in compared if each.missed} == set(row.missed)


@pytest.mark.ci
def test_the_page_shows_what_some_scripts_print_besides_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "figures.json"
    assert main(["--gpu", "t4", "--rows", "17", "--out", str(out)]) == 0
    (ran,) = msgspec.json.decode(out.read_bytes(), type=dict[str, Recorded]).values()
    line = "The wrong index is at line 21   features = table(ids)  # fails"
    assert line in ran.printed["an_index_fails_later"].splitlines()
    t4 = "T4 (virtual)"
    with_it = recorded() | {t4: msgspec.structs.replace(recorded()[t4], printed=ran.printed)}
    monkeypatch.setattr("benchmarks.course.recorded", lambda: with_it)
    section = page(PAGE.read_text("utf-8")).partition("### 17 an_index_fails_later")[2].partition("\n### ")[0]
    assert f"\n{line}\n```\n" in section


@pytest.mark.ci
def test_a_row_of_the_benchmark_is_written_and_others_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    assert main(["--gpu", "t4", "--rows", "9", "--out", str(out), "--seconds", "0"]) == 0
    assert not out.exists()  # there was no time, and nothing was measured
    assert main(["--gpu", "t4", "--rows", "9", "--out", str(out)]) == 0
    assert "growing_shapes_reserve_memory" in out.read_text()
