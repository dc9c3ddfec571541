"""`unstall check`: what it checks, which budgets count, and what it exits with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from budgets.results import RECORDED
from cli.command import EXAMPLES, Cli, Outcome
from report.rendered import as_json

from unstall.cli import parse
from unstall.cli._config import configure
from unstall.cli.check import _NOT_CONFIGURED

slow = pytest.mark.slow
WAITS = EXAMPLES / "train_three_waits.json.gz"
_TRAIN = """
import torch

def main():
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(8):
        loss = model(torch.ones(8, 64, device="cuda")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 6:
            READ

main()
END
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def _table(*lines: str, of_run: str = "") -> None:
    Path("pyproject.toml").write_text("\n".join(["[tool.unstall]", of_run, "[tool.unstall.budget]", *lines]))


def _check(*args: str, **environment: str) -> Outcome:
    """`unstall check ARGS…` as a process of its own."""
    command = [sys.executable, "-m", "unstall", "check", *args]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    return Outcome(done.returncode, done.stdout, done.stderr)


def _states(outcome: Outcome) -> dict[str, str]:
    return {each["budget"]: each["state"] for each in json.loads(outcome.out)["outcomes"]}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--max-syncs-per-step", "3"], 0),
        (["--max-syncs-per-step", "2"], 1),
        (["--max-idle", "10%", "--max-step-ms", "6"], 0),
        (["--max-idle", "5%", "--max-step-ms", "6"], 1),
        (["--max-launches-per-step=34"], 1),
        (["--no-races"], 3),
        (["--max-reserved", "2GB"], 3),
        (["--max-syncs-per-step", "0", "--no-races"], 1),
    ],
)
@pytest.mark.parametrize("behind", [False, True])
def test_a_trace_is_held_to_budgets_before_or_behind_it(
    unstall: Cli, options: list[str], code: int, behind: bool
) -> None:
    words = [WAITS, *options] if behind else [*options, "--", WAITS]
    assert unstall("check", "-q", *words).code == code


def test_lines_and_the_way_out_are_told(unstall: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = unstall("check", WAITS, "--max-syncs-per-step", "0").out
    assert (
        "waits per step: 3, the budget is 0\n1. programs/training.py:90 def step · aten::is_nonzero (1x a step)" in said
    )
    assert "do      compute both branches and choose with torch.where" in said


def test_quietly_only_what_does_not_hold_is_said(unstall: Cli) -> None:
    assert unstall("check", "-q", WAITS, "--max-idle", "10%") == Outcome(0, "", "")
    outcome = unstall("check", "-q", WAITS, "--max-idle", "10%", "--max-syncs-per-step", "2")
    first, *lines = outcome.err.splitlines()
    assert (outcome.out, first) == ("", "unstall: over budget: waits per step: 3, the budget is 2")
    assert [line.split(" in ")[0].split(" · ")[0] for line in lines] == ["  - programs/training.py:90 def step"] * 3


@pytest.mark.parametrize("name", ["::stop-commands::x", " ::add-mask::x", "##[error]x", "a ##vso[task.complete]"])
def test_a_name_of_a_result_is_no_command_to_ci(
    unstall: Cli, monkeypatch: pytest.MonkeyPatch, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert RECORDED.waits is not None
    _saved(waits__lines=[{"where": {"file": name}, "most": 1, "count": 3, "steps_seen": 3}])
    monkeypatch.setenv("COLUMNS", "24")
    for options in ([], ["-q"]):
        outcome = unstall("check", "result.json", "--max-syncs-per-step", "0", *options)
        assert outcome.code == 1
        for line in (outcome.out + outcome.err).splitlines():
            assert not re.match(r"\s*::\S", line)
            assert "##[" not in line
            assert "##vso[" not in line


_ALL = (
    *("--max-syncs-per-step", "2", "--max-launches-per-step", "35", "--max-idle", "6%", "--max-exposed", "100us"),
    *("--max-step-ms", "5", "--max-reserved", "1GiB", "--no-races"),
)


def test_a_saved_result_and_a_saved_timeline_have_the_outcomes_of_their_trace(unstall: Cli) -> None:
    assert unstall("explain", WAITS, "-q", "-o", "result.json", "--save-timeline", "run.unstall").code == 0
    of_trace, *others = (unstall("check", path, *_ALL, "--json") for path in (WAITS, "result.json", "run.unstall"))
    assert len(_states(of_trace)) == 7
    for other in others:
        assert other.code == of_trace.code == 1
        assert json.loads(other.out)["outcomes"] == json.loads(of_trace.out)["outcomes"]


def test_what_is_given_is_told_by_its_content_if_its_name_says_nothing(unstall: Cli) -> None:
    Path("kept").write_text(as_json(RECORDED))
    Path("kept.too").write_bytes(WAITS.read_bytes())
    assert unstall("check", "kept", "--max-syncs-per-step", "2").code == 0
    assert unstall("check", "kept.too", "--max-syncs-per-step", "3").code == 0


def test_a_saved_result_may_have_its_keys_in_any_order(unstall: Cli) -> None:
    result = json.loads(as_json(RECORDED))
    Path("result.json").write_text(json.dumps(dict(reversed(result.items()))))
    assert unstall("check", "result.json", "--max-syncs-per-step", "2").code == 0


def test_a_trace_may_be_piped(tmp_path: Path) -> None:
    command = f'zcat "{WAITS}" | "{sys.executable}" -m unstall check - --max-syncs-per-step 2 --json'
    done = subprocess.run(["sh", "-c", command], capture_output=True)
    assert (done.returncode, json.loads(done.stdout)["path"]) == (1, "stdin")


@pytest.mark.parametrize("source", [WAITS, "train.py"])
def test_without_a_budget_both_ways_to_give_one_are_named(unstall: Cli, source: str | Path) -> None:
    outcome = unstall("check", source)
    assert outcome.code == 2
    assert "--max-syncs-per-step 0" in outcome.err
    assert "[tool.unstall.budget]" in outcome.err


def test_a_budget_behind_the_program_is_told_to_go_before_it(unstall: Cli) -> None:
    outcome = unstall("check", "train.py", "--max-idle", "10%")
    assert (outcome.code, outcome.err) == (
        2,
        "unstall: --max-idle comes after the program, so the program would get it: put it before SOURCE. If the "
        "program has such an option of its own, put -- before SOURCE\n",
    )


@pytest.mark.parametrize("words", [["train.py", "--max-idle=10%"], ["-m", "train", "--no-races"]])
def test_a_budget_behind_the_program_is_refused_if_the_table_has_one_too(unstall: Cli, words: list[str]) -> None:
    _table("max-syncs-per-step = 0")
    outcome = unstall("check", *words)
    assert (outcome.code, "comes after the program" in outcome.err) == (2, True)


@pytest.mark.parametrize("words", [["--", "fails.py", "--max-idle", "9"], ["fails.py", "--", "--max-idle", "9"]])
def test_an_option_of_a_budgets_name_goes_to_the_program_after_two_dashes(words: list[str]) -> None:
    Path("fails.py").write_text("import sys; print(*sys.argv[-2:]); sys.exit(5)")
    outcome = _check("--max-idle", "10%", *words)
    assert (outcome.code, outcome.out) == (5, "--max-idle 9\n")


def _saved(**changes: object) -> None:
    result = json.loads(as_json(RECORDED))
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = result
        for parent in parents:
            place = place[parent]
        place[key] = value
    Path("result.json").write_text(json.dumps(result))


@pytest.mark.parametrize(
    "change",
    [{"steps__count": 0}, {"waits__most": -1}, {"launches__count": -1}, {"reserved__bytes": -1}],
)
def test_a_saved_result_whose_counts_make_no_sense_cannot_be_checked(unstall: Cli, change: dict[str, int]) -> None:
    _saved(**change)
    outcome = unstall("check", "result.json", "--max-syncs-per-step", "0")
    assert (outcome.code, "Expected `int` >= " in outcome.err) == (3, True)


def test_a_saved_result_with_a_figure_that_no_report_can_show_cannot_be_checked(unstall: Cli) -> None:
    _saved(accounts__idle_ns__sync=10**400)
    outcome = unstall("check", "result.json", "--max-idle", "10%")
    assert (outcome.code, outcome.err[:41]) == (3, "unstall: result.json: it has a number of ")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("max-syncs-per-step = 3", 0),
        ("max-syncs-per-step = 2", 1),
        ('max-idle = "10%"', 0),
        ("max-idle = 5", 1),
        ('max-exposed = "1s"', 0),
        ("max-step-ms = 5.5", 1),
        ('max-reserved = "2GB"', 3),
        ("no-races = true", 3),
        ("no-races = false", 2),
    ],
)
def test_a_table_sets_budgets(unstall: Cli, line: str, code: int) -> None:
    _table(line)
    assert unstall("check", "-q", WAITS).code == code


def test_the_command_line_wins_over_the_table_budget_by_budget(unstall: Cli) -> None:
    _table("max-syncs-per-step = 0", "max-launches-per-step = 35")
    outcome = unstall("check", WAITS, "--max-syncs-per-step", "3", "--json")
    assert _states(outcome) == {"max-syncs-per-step": "held", "max-launches-per-step": "held"}


def test_a_table_can_be_ignored(unstall: Cli) -> None:
    _table("max-syncs-per-step = 0")
    assert unstall("check", "--no-config", "-q", WAITS, "--max-idle", "10%").code == 0
    assert unstall("check", "--no-config", WAITS).code == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max-sync-per-step = 0", "max-sync-per-step: there is no such budget; did you mean max-syncs-per-step?"),
        ("max-syncs-per-step = -1", "max-syncs-per-step: '-1' is not a whole number from 0 on"),
        ("max-syncs-per-step = 1.5", "max-syncs-per-step: '1.5' is not a whole number from 0 on"),
        ("max-syncs-per-step = true", "max-syncs-per-step: give a number, or text in quotes"),
        ("max-idle = 0.1", "max-idle: '0.1' may be a fraction or a percentage"),
        ('max-reserved = "2"', "max-reserved: '2' is not a size: write a number and its unit"),
        ("no-races = 1", "no-races: give true or false"),
        ("max-step-ms = [30]", "max-step-ms: give a number, or text in quotes"),
        ("max-syncs-per-step = 0x" + "f" * 10_000, "max-syncs-per-step: is too large"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_with_its_place(unstall: Cli, line: str, said: str) -> None:
    _table(line)
    outcome = unstall("check", WAITS)
    assert outcome.code == 2
    assert outcome.err.startswith("unstall: pyproject.toml: [tool.unstall.budget] ")
    assert said in outcome.err


def test_budgets_that_are_no_table_are_refused(unstall: Cli) -> None:
    Path("pyproject.toml").write_text("[tool.unstall]\nbudget = 3")
    assert "[tool.unstall.budget]: is a number: make it a table" in unstall("check", WAITS).err


def test_run_leaves_the_table_of_budgets_alone() -> None:
    _table("max-idle = 3", of_run='gpu = "h200"')
    args = parse(["run", "train.py"])
    configure(args)
    assert args.gpu == "h200"


def test_of_the_table_of_run_a_check_takes_what_is_about_the_run() -> None:
    _table("max-idle = 3", of_run='gpu = "h200"\nsteps = 7\nfull = true\noutput = "report.html"\njson = true')
    args = parse(["check", "train.py"])
    configure(args)
    assert (args.gpu, args.steps, args.output, args.format) == ("h200", 7, [], None)


def test_every_option_of_run_is_one_of_check_or_left_alone() -> None:
    of_run, of_check = (
        {name[2:] for action in parse([verb, "x.py"]).parser._actions for name in action.option_strings}
        for verb in ("run", "check")
    )
    assert {name for name in of_run - of_check if len(name) > 1} <= set(_NOT_CONFIGURED)
    assert set(_NOT_CONFIGURED) <= of_run


@pytest.mark.parametrize("options", [["--gpu", "h200"], ["--steps", "3"], ["--for", "2"]])
def test_options_of_a_run_are_refused_for_one_that_is_over(unstall: Cli, options: list[str]) -> None:
    outcome = unstall("check", *options, WAITS, "--max-idle", "10%")
    assert outcome.code == 2
    assert outcome.err.startswith(f"unstall: {options[0]} is about a run, and {WAITS} is one that is over")


def test_a_recorded_run_takes_no_arguments(unstall: Cli) -> None:
    assert "which takes no arguments" in unstall("check", "--max-idle", "10%", WAITS, "again").err


def test_a_step_of_another_name_is_counted(unstall: Cli) -> None:
    assert unstall("check", WAITS, "--max-idle", "10%", "--step", "no such step").code == 2


@pytest.mark.parametrize("name", ["gone.json.gz", "gone.unstall"])
def test_a_recorded_run_that_is_not_there_exits_3(unstall: Cli, name: str) -> None:
    assert unstall("check", name, "--max-idle", "10%").code == 3


def test_under_actions_annotations_are_printed_beside_any_format(unstall: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    outcome = unstall("check", WAITS, "--max-syncs-per-step", "2", "--json")
    assert json.loads(outcome.out)["schema"] == "unstall.check/1"
    commands = outcome.err.splitlines()
    assert len(commands) == 3
    assert all(line.startswith("::error file=programs/training.py,line=90,title=") for line in commands)
    assert unstall("check", WAITS, "--max-syncs-per-step", "2", "--format", "github") == Outcome(1, outcome.err, "")
    assert unstall("check", WAITS, "--max-syncs-per-step", "3", "-q") == Outcome(0, "", "")


def test_annotations_and_sarif_name_files_from_the_root_of_the_repository(
    unstall: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(".git")).mkdir()
    for folder in ("model", "model/programs"):
        Path(folder).mkdir()
    Path("model/programs/training.py").write_text("")
    monkeypatch.chdir("model")
    unstall("check", WAITS, "--max-syncs-per-step", "2", "-q", "-o", "../check.sarif")
    found = json.loads(Path("../check.sarif").read_text())["runs"][0]["results"]
    files = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in found}
    assert files == {"model/programs/training.py"}


def test_reports_go_to_files_by_their_endings(unstall: Cli) -> None:
    names = ["c.sarif", "c.xml", "c.json", "c.md", "c.html", "c.txt"]
    assert (
        unstall("check", WAITS, "-q", "--max-idle", "5%", *(word for name in names for word in ("-o", name))).code == 1
    )
    assert Xml.parse("c.xml").getroot().tag == "testsuites"
    assert json.loads(Path("c.sarif").read_text())["version"] == "2.1.0"
    assert json.loads(Path("c.json").read_text())["schema"] == "unstall.check/1"
    assert Path("c.md").read_text().startswith("### unstall check\n")
    assert "The budget is exceeded." in Path("c.txt").read_text()


@pytest.mark.parametrize("name", ["x.sarif", "x.xml"])
def test_formats_of_checks_are_no_others(unstall: Cli, name: str) -> None:
    outcome = unstall("explain", WAITS, "-o", name)
    assert outcome.code == 2
    assert "its ending names no format. Use .html, .json, .md, .txt, or say --format" in outcome.err.replace(
        ".htm, ", ""
    )


@pytest.mark.parametrize("words", [["torchrun", "train.py"], ["python", "train.py"]])
def test_a_launcher_is_told_to_come_first(words: list[str]) -> None:
    from unstall.cli._commands import advice_on

    assert "unstall check" in (advice_on(words, [], verb="check") or "")


def test_help_names_the_exit_codes() -> None:
    assert "3 if one cannot be checked" in re.sub(r"\s+", " ", parse(["check", "x.py"]).parser.format_help())


def test_the_programs_exit_code_wins() -> None:
    Path("fails.py").write_text("import sys; print('done'); sys.exit(5)")
    outcome = _check("--max-idle", "10%", "fails.py")
    assert (outcome.code, outcome.out) == (5, "done\n")


def test_a_program_of_which_nothing_is_known_cannot_be_checked() -> None:
    Path("idle.py").write_text("print('done')")
    outcome = _check("--max-idle", "10%", "idle.py")
    assert (outcome.code, outcome.out) == (3, "done\n")
    assert outcome.err.endswith("unstall: no budget can be checked: nothing is known of the run\n")


def test_a_missing_program_is_usage(unstall: Cli) -> None:
    outcome = unstall("check", "--max-idle", "10%", "gone.py")
    assert (outcome.code, outcome.err) == (2, "unstall: gone.py: there is no such script\n")


def _train(read: str = "pass", end: str = "") -> None:
    Path("train.py").write_text(_TRAIN.replace("READ", read).replace("END", end))


@slow
def test_a_planted_item_is_found_without_a_gpu_and_the_mended_program_passes() -> None:
    _table("max-syncs-per-step = 0", "no-races = true", 'max-reserved = "1GB"', of_run='gpu = "h200"')
    _train("print(loss.item())")
    outcome = _check("-o", "check.json", "train.py")
    assert outcome.code == 1
    assert re.fullmatch(r"-?[\d.]+\n", outcome.out)
    said = "waits per step: 1 in step 5 of 5 (mean: 0.2), the budget is 0\n1. train.py:13 in main"
    assert said in outcome.err
    states = {each["budget"]: each["state"] for each in json.loads(Path("check.json").read_text())["outcomes"]}
    assert states == {"max-syncs-per-step": "exceeded", "max-reserved": "held", "no-races": "held"}

    trace = _check("--no-config", "train.trace.json.gz", "--max-syncs-per-step", "0", "-q")
    assert (trace.code, trace.err.splitlines()[1]) == (
        1,
        "  - train.py:13 in main · aten::item · called from train.py:15 in <module>: 1x in 1 of 5 steps",
    )

    _train()
    assert _check("train.py").code == 0


@slow
def test_the_exit_code_of_a_program_that_fails_wins_over_a_budget_and_the_budget_is_told() -> None:
    _train("print(loss.item())", end="raise SystemExit(7)")
    outcome = _check("--gpu", "h200", "--max-syncs-per-step", "0", "--json", "train.py")
    assert outcome.code == 7
    assert _states(outcome) == {"max-syncs-per-step": "exceeded"}


@slow
@pytest.mark.parametrize(("limit", "code"), [("1", 3), ("0", 1)])
def test_a_report_that_cannot_be_written_is_no_success(limit: str, code: int) -> None:
    Path("reports").mkdir()
    _train("print(loss.item())", end="import os; os.rmdir('reports')")
    outcome = _check("--gpu", "h200", "--max-syncs-per-step", limit, "-o", "reports/c.sarif", "train.py")
    assert outcome.code == code
    assert "reports/c.sarif" in outcome.err


@slow
def test_a_race_breaks_the_budget_of_races() -> None:
    outcome = _check("--gpu", "h200", "--no-races", "-q", str(EXAMPLES.parent / "race.py"))
    assert outcome.code == 1
    assert "over budget: races: 1, the budget is none" in outcome.err


@slow
def test_a_module_is_checked() -> None:
    _train()
    assert _check("--gpu", "h200", "--max-launches-per-step", "1", "-q", "-m", "train").code == 1


@pytest.mark.gpu
def test_races_are_looked_for_on_a_real_gpu() -> None:
    outcome = _check("--no-races", "--json", str(EXAMPLES.parent / "race.py"))
    assert outcome.code == 1
    assert _states(outcome) == {"no-races": "exceeded"}


@pytest.mark.gpu
def test_races_are_not_looked_for_beside_other_budgets_on_a_real_gpu() -> None:
    outcome = _check("--no-races", "--max-idle", "100%", "--json", str(EXAMPLES.parent / "race.py"))
    assert _states(outcome)["no-races"] == "unknown"


@pytest.mark.gpu
def test_a_planted_item_is_found_on_a_real_gpu() -> None:
    _train("print(loss.item())")
    outcome = _check("--warmup", "2", "--max-syncs-per-step", "0", "--max-reserved", "1GB", "--json", "train.py")
    assert outcome.code == 1
    assert _states(outcome) == {"max-syncs-per-step": "exceeded", "max-reserved": "held"}


def test_options_of_a_virtual_gpu_need_one(unstall: Cli) -> None:
    assert unstall("check", "--numerics", "skip", "--max-idle", "3", "train.py").code == 2
