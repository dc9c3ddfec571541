"""`unstall course`: the list, one experiment, its source, copies of it, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from cli.command import Cli
from course.experiments import not_run

from unstall.course.answer import Studied
from unstall.course.table import names, script, table
from unstall.document.document import Code
from unstall.report.short import MEMORY

NAME = "the_allocator_keeps_memory"


def test_without_a_name_all_experiments_are_listed(unstall: Cli) -> None:
    outcome = unstall("course")
    assert outcome.code == 0
    for name in names():
        assert name in outcome.out
    listed = json.loads(unstall("course", "--json").out)
    assert listed["schema"] == "unstall.course.table/1"
    assert [row["number"] for row in listed["rows"]] == sorted(row["number"] for row in listed["rows"])


def test_the_list_says_how_long_each_experiment_takes(unstall: Cli) -> None:
    lines = unstall("course").out.splitlines()
    for name in names():
        assert any(re.fullmatch(rf" *\d+ +{name}  \d+ s", line) for line in lines), name


def test_an_experiment_runs_beside_its_authors_figures(unstall: Cli) -> None:
    outcome = unstall("course", "8", "--gpu", "t4")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "8. Why is GPU memory still used when its tensors are gone?"
    assert lines[2].startswith("What to learn: ")
    assert outcome.out.count("33,554,432 bytes") == 3  # of the author, recorded and here: each once
    assert "(exactly" not in outcome.out
    title = " ".join(outcome.out.partition("\nfigures ")[2].partition("\nreserved")[0].split())
    assert title == "(author: Tesla T4; here: a virtual T4) author H200 (real) here"
    assert sum(line.startswith("- holds: ") for line in lines) == 7
    assert max(map(len, lines)) <= 80


def test_json_has_the_figures_and_the_checks(unstall: Cli) -> None:
    found = json.loads(unstall("course", NAME, "--gpu", "t4", "--json").out)
    assert found["schema"] == "unstall.course/1"
    (experiment,) = found["experiments"]
    assert (experiment["name"], experiment["gpu"], experiment["failure"]) == (NAME, "t4", "")
    figures = {figure["label"]: figure["value"] for figure in experiment["figures"]}
    assert figures["reserved_bytes.all.current"] == 83_886_080
    assert all(check["holds"] for check in experiment["checks"])


def test_show_prints_the_script(unstall: Cli) -> None:
    assert unstall("course", NAME, "--show").out == script(NAME).read_text()


def test_copies_are_scripts_and_notebooks_and_a_changed_one_is_not_lost(unstall: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert unstall("course", "--copy", folder).code == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{name}{ending}" for name in names() for ending in (".ipynb", ".py")
    )
    assert unstall("course", NAME, "--copy", folder).code == 0  # unchanged: nothing is lost
    (folder / f"{NAME}.py").write_text("mine")
    outcome = unstall("course", "--copy", folder)
    assert outcome.code == 2
    assert f"{NAME}.py was changed, and would be lost" in outcome.err
    assert (folder / f"{NAME}.py").read_text() == "mine"


def test_a_changed_copy_runs_as_the_course_does(unstall: Cli, tmp_path: Path) -> None:
    said = unstall("course", NAME, "--copy", tmp_path).out
    copy = tmp_path / f"{NAME}.py"
    assert f"unstall course {copy}  # " in said
    assert f"unstall run --gpu t4 --numerics skip --host modelled {copy}\n" in said
    copy.write_text(copy.read_text().replace("make(3072)", "make(1024)", 1))
    outcome = unstall("course", copy, "--gpu", "t4")
    assert outcome.code == 1
    assert "- does not hold: A larger tensor needs a segment of its own: 32 + 48 MiB." in outcome.out
    assert '"after 4096x3072" is 32.0 MiB (exactly 80 MiB)' in " ".join(outcome.out.split())
    assert outcome.out.startswith("8. Why is GPU memory still used when its tensors are gone? (a changed copy)\n")
    assert re.search(r"figures \(here: a virtual T4\) +unchanged +here\n", outcome.out)
    assert re.search(r"after 4096x3072 +80.0 MiB +32.0 MiB\n", outcome.out)
    assert "unstall course 8 --show" not in outcome.out
    assert outcome.out.endswith(f"\nThe exit code is 1:\n{NAME}: 1 of 7 checks does not hold\n")
    assert unstall("course", copy, "--show").out == copy.read_text()


def test_a_script_that_takes_too_long_is_stopped_and_says_so_last(unstall: Cli, tmp_path: Path) -> None:
    copy = tmp_path / f"{NAME}.py"
    copy.write_text("import time\ntime.sleep(1000)\n")
    outcome = unstall("course", copy, "--gpu", "t4", "--timeout", "0.5")
    assert outcome.code == 1
    assert outcome.out.count("- not checked: ") == 7
    assert " ".join(outcome.out.split()).count("(the script was stopped after 0.5 s)") == 7
    assert "does not hold" not in outcome.out
    last = " ".join(outcome.out.rpartition("The exit code is 1:")[2].split())
    assert last == f"{NAME}: the script was stopped after 0.5 s: --timeout sets the limit"


def test_a_copy_that_fails_shows_its_own_lines_only(unstall: Cli, tmp_path: Path) -> None:
    copy = tmp_path / f"{NAME}.py"
    copy.write_text("def fail():\n    raise ValueError('mine')\n\n\nfail()\n")
    outcome = unstall("course", copy, "--gpu", "t4")
    assert outcome.code == 1
    shown = outcome.out.partition("the script ended with exit code 1: ValueError: mine\n")[2]
    assert shown.startswith(f'  File "{NAME}.py", line 5, in <module>\n')
    assert "runpy" not in outcome.out


def test_explain_of_a_script_whose_package_is_missing_says_how_to_get_it(
    unstall: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstall.course.running.find_spec", lambda name: None)
    outcome = unstall("course", "24", "--explain", "--gpu", "t4")
    assert (outcome.code, outcome.out) == (2, "")
    assert "the script needs numba: pip install numba" in outcome.err


def test_a_copy_runs_beside_the_script_that_it_was_made_of(unstall: Cli, tmp_path: Path) -> None:
    unstall("course", NAME, "--copy", tmp_path)
    copy = tmp_path / f"{NAME}.py"
    copy.write_text("print('changed')")
    outcome = unstall("course", NAME, copy, NAME, "--show")
    assert outcome.out == f"{script(NAME).read_text()}\nprint('changed')\n"


@pytest.mark.ci
def test_explain_explains_a_copy(unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = unstall("course", "8", "--explain", "--gpu", "t4", "--json")
    assert outcome.code == 0
    places = {finding["where"]["file"] for finding in json.loads(outcome.out)["findings"]}
    assert {Path(place).name for place in places if place} == {f"{NAME}.py"}


ABOUT = {
    "the_first_call_takes_longer": "net(batch).square().mean().backward()",
    "the_first_launch_loads_kernels": 'run("first run", lambda: net(x))',
    "launches_return_at_once": "return (time.perf_counter() - begin)",
    "timers_agree_on_the_cpu": "return timeit.timeit(",
    "numpy_against_the_gpu": "# the products are not done yet",
    "the_queue_of_launches": "layer(x)",
    "a_full_queue_makes_launches_slow": "torch.relu(self.norm(self.conv(x)))",
    "reading_a_value_waits": "# waits",
    "metrics_are_read_later": "# waits",
    "pageable_memory_is_staged": "there.copy_(pageable",
    "copies_beside_a_product": 'pinned.to("cuda", non_blocking=True)',
    "when_two_streams_help": "large @ large",
    "a_stream_does_not_wait_for_another": "# reads",
    "a_graph_launches_once": "it observes, captures",
    "growing_shapes_reserve_memory": "torch.empty(size * 16 * MIB",
}
"""What is in the line that a row's finding is about, for each row with a finding."""


def test_each_row_with_a_finding_has_a_line_that_it_is_about() -> None:
    assert set(ABOUT) == {name for name, row in table().items() if row.finding not in ("", MEMORY)}


MARKS = {name: [pytest.mark.slow] for name in ABOUT} | {"growing_shapes_reserve_memory": []}


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
def test_explain_shows_the_finding_that_the_row_is_about_first(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = unstall("course", name, "--explain", "--gpu", "t4").err
    before, heading, after = said.partition("What this program is about\n")
    assert heading
    assert not any(other in before for other in ("the run would be", "plan: ", "Findings", "Good to know", "next\n"))
    assert "would be shorter by" in after or "would be shorter by" not in said
    shown = " ".join(after.partition("\n\n")[0].split())
    place = re.search(rf" at: {name}\.py:(\d+) ", shown)
    assert place
    assert ABOUT[name] in script(name).read_text("utf-8").splitlines()[int(place[1]) - 1]
    (trace,) = tmp_path.glob("*.trace.json.gz")
    rule = table()[name].finding.partition(":")[0]
    found = json.loads(unstall("explain", trace, "--json").out)["findings"]
    mine = [each for each in found if (each["rule"], each["where"]["line"]) == (rule, int(place[1]))]
    assert any(each["title"] in shown for each in mine)


def test_explain_shows_the_memory_over_time_first_if_the_row_is_about_it(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = unstall("course", "a_leak_or_the_cache", "--explain", "--gpu", "t4").err
    before, heading, after = said.partition("What this program is about\n\nMemory over time, from the start of the ")
    assert heading
    assert "would be shorter by" not in before
    first = after.partition("Lines that hold it at the peak")[2].splitlines()[1]
    assert re.match(r"a_leak_or_the_cache\.py:14 in loss_of +4\d\d MiB +9\d", first)
    assert re.search(r"\nnext\nunstall open\n", after)
    assert "--patch" not in after  # it would take out what the script needs


@pytest.mark.ci
@pytest.mark.parametrize("name", [name for name, row in table().items() if row.then])
def test_what_a_row_says_to_run_after_explain_works(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROWSER", "true")
    assert unstall("course", name, "--explain", "--gpu", "t4").code == 0
    for command, about in table()[name].then:
        assert about
        assert unstall(*shlex.split(command)[1:]).code == 0


def test_a_copy_that_is_no_text_in_utf_8_is_refused(unstall: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "the_allocator_keeps_memory.py"
    copy.write_bytes("# größer".encode("latin-1"))
    for more in ([], ["--show"], ["--copy", str(tmp_path / "again")]):
        outcome = unstall("course", str(copy), *more)
        assert outcome.code == 2
        assert "cannot be read as text in UTF-8" in outcome.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["the_alocator"], "'the_alocator' is no experiment; did you mean the_allocator_keeps_memory?"),
        (["999"], "'999' is no experiment; unstall course lists them"),
        (["99"], "'99' is no experiment; unstall course lists them"),
        ([""], "'' is no experiment; unstall course lists them"),
        (["all", "99"], "'99' is no experiment; unstall course lists them"),
        (["8", "leak"], "'leak' is no experiment; did you mean a_leak_or_the_cache or the_allocator_keeps_memory?"),
        (["barier"], "no experiment is about 'barier'; did you mean barrier?"),
        (["hang"], "no experiment is about 'hang'; unstall course lists them"),
        (["zzzz", "barier"], "no experiment is about 'zzzz barier'; did you mean barrier?"),
        (["no_such/copies_beside_a_product.py"], "no_such/copies_beside_a_product.py does not exist"),
        ([__file__], "has the name of no experiment: a copy keeps its name"),
        (["--explain"], "--explain is about one experiment"),
        (["8", "--gpu", "t9"], "t9"),
        (["8", "--show", "--explain"], "not allowed with"),
        (["8", "--timeout", "0"], "--timeout: nothing runs in 0 s"),
    ],
)
def test_what_cannot_be_done_is_said(unstall: Cli, args: list[str], said: str) -> None:
    outcome = unstall("course", *args)
    assert outcome.code == 2
    assert said in outcome.err


@pytest.mark.ci
def test_several_experiments_run(unstall: Cli) -> None:
    outcome = unstall("course", "8", "9", "--gpu", "t4")
    assert outcome.code == 0
    assert outcome.out.index("8. Why is GPU memory") < outcome.out.index("9. How much memory")


def test_words_list_the_experiments_about_them_and_run_none(unstall: Cli) -> None:
    outcome = unstall("course", "barrier")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "Experiments about barrier:"
    assert [int(found[1]) for line in lines if (found := re.match(r" *(\d+)  \w+  \d+ s$", line))] == [15, 16, 24]
    assert max(map(len, lines)) <= 80
    listed = json.loads(unstall("course", "first", "iteration", "--json").out)
    assert listed["schema"] == "unstall.course.table/1"
    assert [row["name"] for row in listed["rows"]] == ["the_first_call_takes_longer"]


def test_a_question_with_numbers_in_it_is_words(unstall: Cli) -> None:
    outcome = unstall("course", "forward", "takes", "17", "ms", "at", "all", "steps,", "ResNet")
    assert outcome.code == 0
    assert outcome.out.splitlines()[2].startswith(" 6  a_full_queue_makes_launches_slow")


@pytest.mark.parametrize("more", [["--show"], ["--explain"], ["--copy", "folder"]])
def test_a_word_is_not_shown_copied_or_explained(unstall: Cli, more: list[str]) -> None:
    outcome = unstall("course", "leak", *more)
    assert (outcome.code, outcome.out) == (2, "")
    assert "'leak' is no experiment; did you mean a_leak_or_the_cache or the_allocator_keeps_memory?" in outcome.err


def test_each_line_of_what_to_do_next_can_be_pasted_into_a_shell() -> None:
    """It fits into 80 columns with the indent of a report, so that no comment wraps into a line without its `#`."""
    for name, row in table().items():
        found = not_run(name, row, learn=row.learn)
        *_, ending = Studied([found]).document().blocks
        assert isinstance(ending, Code)
        for other in row.related:
            (line,) = (each for each in ending.lines if each.startswith(f"unstall course {other} "))
            assert len(line) <= 78


@pytest.mark.ci
def test_options_of_the_virtual_gpu_take_the_place_of_an_experiment_s_own(unstall: Cli) -> None:
    """Notes of a run name `--host mixed`, so that the command must take it."""
    outcome = unstall("course", "1", "--gpu", "t4", "--host", "mixed", "--json")
    (experiment,) = json.loads(outcome.out)["experiments"]
    figures = {figure["label"]: figure["value"] for figure in experiment["figures"]}
    assert figures["empty loop"] > 0
