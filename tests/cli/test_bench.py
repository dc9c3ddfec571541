"""`unstall bench`: statements measured, compared, and held against a baseline."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import get_args

import pytest
from cli.command import Cli

from unstall.cli import main

QUICK = "--max-seconds", "0.1"


def test_a_statement_is_measured(unstall: Cli) -> None:
    done = unstall("bench", "sum(numbers)", "--setup", "numbers = range(100)", *QUICK)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("sum(numbers)\n")
    assert re.search(r"^wall +\d", done.out, re.MULTILINE)


def test_names_that_everybody_knows_are_imported(unstall: Cli) -> None:
    done = unstall("bench", "np.add(x, x)", "--vs", "x + x", "--setup", "x = np.ones(10)", *QUICK)
    assert done.code == 0
    assert "x + x: the results are equal" in done.out


def test_statements_are_compared_and_the_lines_fit_a_terminal(unstall: Cli) -> None:
    done = unstall("bench", "sum(range(10))", "--vs", "sum(range(1000))  // 11100", *QUICK)
    assert done.code == 0
    assert "SLOW" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_statement_that_computes_something_else_fails(unstall: Cli) -> None:
    done = unstall("bench", "1.0 + 1", "--vs", "1.0 + 2", *QUICK)
    assert done.code == 1
    assert "1.0 + 2 does not compute what 1.0 + 1 does" in done.out


def test_json_has_stdout_to_itself(unstall: Cli) -> None:
    assert json.loads(unstall("bench", "1 + 1", "--json", *QUICK).out)["schema"] == "unstall.bench/1"
    compared = json.loads(unstall("bench", "int()", "--vs", "0", "--json", *QUICK).out)
    assert [each["name"] for each in compared["comparisons"][0]["candidates"]] == ["int()", "0"]


def test_what_statements_print_goes_elsewhere_where_a_format_has_stdout(unstall: Cli) -> None:
    done = unstall("bench", "print('here')", "--json", *QUICK)
    assert json.loads(done.out)["label"] == "print('here')"
    assert "here" in done.err


def test_rates_are_of_what_a_statement_is_said_to_move_and_compute(unstall: Cli) -> None:
    setup = "--setup", "x = np.ones(1 << 16)"
    done = unstall("bench", "x + 1", *setup, "--bytes", "1MiB", "--flops", "65536", "--rel-ci", "5%", *QUICK, "--json")
    found = json.loads(done.out)
    assert found["bandwidth"]["per_second"] == pytest.approx((1 << 20) / found["wall"]["median_ns"] * 1e9)
    assert found["rate"]["per_second"] == pytest.approx(65536 / found["wall"]["median_ns"] * 1e9)


def test_choices_are_those_of_the_functions() -> None:
    from unstall.cli import bench
    from unstall.measuring.comparing.turns import By
    from unstall.measuring.measurement import Cache, Method

    assert get_args(Cache) == bench._CACHES
    assert {"auto", *get_args(Method)} == set(bench._METHODS)
    assert get_args(By) == bench._TIMES


def test_what_is_slower_than_its_baseline_fails(unstall: Cli, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    statement = "work()", "--setup"
    assert unstall("bench", *statement, "work = lambda: sum(range(100))", "--save-baseline", path, *QUICK).code == 0
    done = unstall("bench", *statement, "work = lambda: sum(range(1000))", "--baseline", path, *QUICK)
    assert done.code == 1
    assert re.search(r"^unstall: over budget: work\(\) takes .* %\), --fail-above is 5 %$", done.err, re.MULTILINE)
    done = unstall("bench", *statement, "work = lambda: sum(range(10))", "--baseline", path, *QUICK)
    assert done.code == 0
    assert "unstall: work() takes" in done.err


def test_a_comparison_is_by_the_baselines_time(unstall: Cli, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    statements = "sum(range(99))", "--vs", "sum(range(98)) + 98", *QUICK
    assert unstall("bench", *statements, "--by", "throughput", "--save-baseline", path).code == 0
    done = unstall("bench", *statements, "--baseline", path, "--json")
    assert done.code in (0, 1)  # whether a busy machine was slower this time is not asked
    assert json.loads(done.out)["comparisons"][0]["by"] == "throughput"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("1 +",), 2, "1 +: invalid syntax"),
        (("nothing",), 2, "nothing: NameError: name 'nothing' is not defined"),
        (("1", "--setup", "1 / 0"), 2, "the setup fails: ZeroDivisionError"),
        (("1", "--vs", "1 / 0", *QUICK), 2, "unstall: 1 / 0: ZeroDivisionError: division by zero"),
        (("raise SystemExit(3)",), 2, "raise SystemExit(3): it ends the program, by SystemExit: 3"),
        (("1", "--vs", "exit()", *QUICK), 2, "exit(): it ends the program, by SystemExit"),
        (("1", "--setup", "exit(1)"), 2, "the setup fails: it ends the program, by SystemExit: 1"),
        (("1", "--html", "page.html"), 2, "--html: there is no such option: -o page.html writes a page"),
        (("1", "--vs", "1"), 2, "a statement is there twice"),
        (("1", "2 + 2"), 2, "unrecognized arguments: 2 + 2; another statement needs --vs before it: --vs '2 + 2'"),
        (("1", "--by", "wall"), 2, "--by and --same-within need --vs"),
        (("1", "--fail-above", "5%"), 2, "--fail-above is about a baseline"),
        (("1", "--max-seconds", "soon"), 2, "--max-seconds: 'soon' is no time"),
        (("1", "-o", "plot.png"), 2, "plot.png: its ending names no format. Use .htm"),
        (("1", "--rel-ci", "2"), 2, "--rel-ci: '2': write a percentage or a fraction, such as 5% or 0.05"),
        (("1", "--bytes", "64M"), 2, "--bytes: '64M' is no number of bytes: write it with its unit, such as 64MiB"),
        (("1", "--flops", "many"), 2, "--flops: 'many' is no number of operations: write it as 2e9"),
        (("1", "--vs", "2", "--bytes", "8B"), 2, "--bytes is about one statement: leave --vs out"),
        (("1", "--method", "cupti", *QUICK), 2, 'method="cupti" is of a device, and 1 has no work on one'),
        (("1", "--max-seconds", "0"), 2, "--max-seconds: nothing is measured in 0 s"),
        (("1", "--baseline", "nowhere.json", *QUICK), 3, "nowhere.json: No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(unstall: Cli, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = unstall("bench", *arguments)
    assert done.code == code
    assert message in done.err


@pytest.mark.parametrize("vs", [(), ("--vs", "x * 2")])
def test_the_page_has_the_samples_and_needs_nothing_else(unstall: Cli, tmp_path: Path, vs: tuple[str, ...]) -> None:
    path = tmp_path / "plot.html"
    assert unstall("bench", "x + x", *vs, "--setup", "x = '<b>&'", "-o", path, *QUICK).code == 0
    page = path.read_text("utf-8")
    assert page.count('class="fill"') == 1 + bool(vs)
    assert "prefers-color-scheme: dark" in page
    assert re.search(r"(src|href)=|url\(|@import", page) is None
    assert len(re.findall(r'text-anchor="middle">[\d,.]+ (?:ns|µs|ms|s)<', page)) >= 3


def test_a_baseline_that_is_missing_is_told_before_anything_is_measured(unstall: Cli, tmp_path: Path) -> None:
    done = unstall("bench", "1 + 1", "--baseline", tmp_path / "none.json", *QUICK)
    assert (done.code, done.out) == (3, "")
    assert "Make a baseline with --save-baseline" in done.err


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _on_a_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """The code, and what stderr shows where that is a terminal."""
    stderr = _Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    return main(["bench", *arguments]), stderr.getvalue()


def test_on_a_terminal_a_line_says_what_is_under_way_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown = _on_a_terminal(monkeypatch, "sum(range(9))", *QUICK)
    assert code == 0
    assert "\r\x1b[Kmeasuring: the first call" in shown
    assert "measuring: calls one by one" in shown
    assert shown.endswith("\r\x1b[K")


def test_of_a_comparison_it_says_that_calls_run_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = _on_a_terminal(monkeypatch, "sum(range(9))", "--vs", "sum(range(8)) + 8", *QUICK)
    assert "measuring: calls by turns" in shown


@pytest.mark.parametrize("option", ["--json", "--quiet"])
def test_nothing_is_under_way_where_that_is_not_wanted(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    assert _on_a_terminal(monkeypatch, "sum(range(9))", option, *QUICK) == (0, "")


def test_quiet_leaves_the_table_out_and_writes_what_is_asked_for(unstall: Cli, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    done = unstall("bench", "1 + 1", "--quiet", "-o", path, *QUICK)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert json.loads(path.read_text("utf-8"))["label"] == "1 + 1"


def test_an_option_that_only_says_what_to_use_is_not_offered(unstall: Cli) -> None:
    offered = [unstall("completion", shell).out for shell in ("bash", "zsh", "fish")]
    assert not any("--html" in text or "SUPPRESS" in text for text in (*offered, unstall("bench", "--help").out))
