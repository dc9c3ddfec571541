"""`unstall fleet`, and `unstall diff` of two jobs: what they print, write and exit with."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from cli.command import Cli
from fleets.jobs import job, train_ddp
from msgspec.structs import replace

import unstall as public
from unstall.answers.fleet import Fleet
from unstall.fleets import cache


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    slow, good = tmp_path_factory.mktemp("slow"), tmp_path_factory.mktemp("good")
    for folder, cause in ((slow, "kernel"), (good, "")):
        job(partial(train_ddp, slow=1, cause=cause, steps=4, layers=2), folder, ranks=4, kernel_jitter=0.01)
    return slow, good


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_report_names_the_rank_the_line_and_the_gain(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    outcome = unstall("fleet", jobs[0], "--edit", "no-stragglers")
    assert (outcome.code, outcome.err) == (0, "")
    said = " ".join(outcome.out.split())
    assert "Rank 1 makes the others wait" in said
    assert "hooks.py:7" in said
    assert "no-stragglers" in said
    assert max(map(len, outcome.out.splitlines())) <= 80


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_with_edits_the_report_begins_with_what_they_change(unstall: Cli, jobs: tuple[Path, Path], form: str) -> None:
    said = " ".join(unstall("fleet", jobs[0], "--edit", "no-stragglers", "--format", form).out.split())
    answer = said.index("A step would take 8.62 ms instead of 28.5 ms with no-stragglers: 3.3x as fast.")
    assert answer < said.index("A step of the job") < said.index("Rank 1 makes the others wait")
    several = unstall("fleet", jobs[0], "--edit", "no-stragglers", "--edit", "1/host-speed:2", "--format", form).out
    assert "with these 2 edits" in several


def test_it_is_noted_if_edits_are_made_in_another_order(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    edits = ("no-stragglers", "1/host-speed:2", "rank-like:0:2")
    given = [part for edit in edits for part in ("--edit", edit)]
    made = json.loads(unstall("fleet", jobs[0], *given, "--json").out)["edits"]
    notes = {each["edit"]: [note for note in each["notes"] if note.startswith("made after")] for each in made}
    assert list(notes) == ["1/host-speed:2", "no-stragglers", "rank-like:0:2"]
    assert notes["no-stragglers"] == ["made after 1/host-speed:2: those of the whole job are made last"]
    assert notes["rank-like:0:2"] == notes["1/host-speed:2"] == []


def test_the_rank_on_which_a_line_costs_most_is_shown_beside_long_names_too(jobs: tuple[Path, Path]) -> None:
    result = public.fleet(jobs[0]).result
    lines = tuple(replace(line, where=replace(line.where, function="function_" * 8)) for line in result.lines)
    shown = str(Fleet(replace(result, lines=lines))).partition("\nLines, mean of all ranks")[2]
    assert "rank 1" in shown.partition("\n\n")[0]


def test_runs_without_steps_are_said_to_be_whole_runs(unstall: Cli, tmp_path: Path) -> None:
    job(partial(train_ddp, steps=1, layers=2), tmp_path, ranks=2)
    for path in tmp_path.iterdir():
        trace = json.loads(path.read_text())
        trace["traceEvents"] = [event for event in trace["traceEvents"] if "Step" not in event["name"]]
        path.write_text(json.dumps(trace))
    assert "2 ranks of 2 · no steps were found in runs of " in unstall("fleet", tmp_path).out


@pytest.mark.parametrize("ending", ["txt", "md"])
def test_the_whole_report(
    unstall: Cli,
    jobs: tuple[Path, Path],
    ending: str,
    golden: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(jobs[0].parent)
    form = {"txt": "text", "md": "markdown"}[ending]
    out = unstall("fleet", jobs[0].name, "--edit", "no-stragglers", "--edit", "rank-like:1:0", "--format", form).out
    golden(f"fleet.{ending}", out.replace(jobs[0].name, "traces"))


def test_all_formats_are_written_and_the_json_can_be_shown_again(
    unstall: Cli, jobs: tuple[Path, Path], tmp_path: Path
) -> None:
    written = [tmp_path / f"fleet.{ending}" for ending in ("html", "json", "md", "txt")]
    assert unstall("fleet", jobs[0], "-q", *(part for path in written for part in ("-o", path))).code == 0
    page, data, markdown, text = (path.read_text() for path in written)
    assert json.loads(data)["schema"] == "unstall.fleet/1"
    assert markdown.startswith("### unstall fleet")
    assert '<details name="lanes" open>' in page
    assert "rank 0, step 1: waits for" in page
    again = unstall("report", written[1]).out
    assert again == text


def test_a_glob_and_a_list_of_files_give_the_same_job(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    files = sorted(jobs[0].iterdir())
    ranks = [
        [rank["rank"] for rank in json.loads(unstall("fleet", *given, "--json").out)["ranks"]]
        for given in ([jobs[0]], [f"{jobs[0]}/rank*.json"], files)
    ]
    assert ranks == [[0, 1, 2, 3]] * 3


def test_a_second_question_reads_no_trace(
    unstall: Cli, jobs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = unstall("fleet", jobs[0], "--json").out
    kept = list(cache.folder().iterdir())
    assert len(kept) == 4
    monkeypatch.setattr("unstall.fleets.summarise.load_usable", None)
    assert unstall("fleet", jobs[0], "--json").out == first
    assert "none of the 4 files can be used" in unstall("fleet", jobs[0], "--no-cache").err


def test_a_damaged_cache_is_no_error(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    first = unstall("fleet", jobs[0], "--json").out
    for entry in cache.folder().iterdir():
        entry.write_bytes(entry.read_bytes()[:100])
    assert unstall("fleet", jobs[0], "--json").out == first


def test_paths_are_shortened_if_asked(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    out = unstall("fleet", jobs[0], "--json", "--scrub-paths").out
    assert str(jobs[0].parent) not in out


def test_an_unknown_executor_is_refused(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    outcome = unstall("fleet", jobs[0], "--on", "slurm")
    assert (outcome.code, "--on slurm: write ray, or ray://ADDRESS:PORT" in outcome.err) == (2, True)


def test_two_jobs_are_compared(unstall: Cli, jobs: tuple[Path, Path], tmp_path: Path) -> None:
    slow, good = jobs
    outcome = unstall("diff", slow, good)
    said = " ".join(outcome.out.split())
    assert "rank 1: gone" in said
    assert "without the delay of rank 1, which no longer makes the others wait" in said
    assert "held up by a straggler" in said
    assert "not held up by any rank" in said
    assert outcome.code == 0
    assert unstall("diff", good, slow, "--fail-on-slower", "5%").code == 1
    saved = tmp_path / "a.json", tmp_path / "b.json"
    for folder, path in zip(jobs, saved, strict=True):
        unstall("fleet", folder, "-q", "-o", path)
    one, other = (json.loads(unstall("diff", *pair, "--json").out) for pair in (jobs, saved))
    assert one["schema"] == "unstall.fleet-diff/1"
    assert one == other


def test_two_globs_are_two_jobs(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    globs, folders = (unstall("diff", *pair, "--json").out for pair in ([f"{job}/rank*.json" for job in jobs], jobs))
    assert globs.replace("/rank*.json", "") == folders
    assert "no file matches it" in unstall("diff", jobs[0], f"{jobs[1]}/nothing*.json").err


def test_what_was_promised_is_told_if_nothing_has_changed(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    said = " ".join(unstall("diff", jobs[0], jobs[0]).out.split())
    assert "No change beyond noise" in said
    assert "A's report promised 8.64 ms without the delay of rank 1, which still makes the others wait." in said


def test_a_change_within_noise_exceeds_no_budget(unstall: Cli, tmp_path: Path) -> None:
    times = {}
    for seed in (1, 2):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        job(partial(train_ddp, steps=6, layers=2), folder, ranks=2, seed=seed, host_jitter=0.2)
        times[folder] = json.loads(unstall("fleet", folder, "--json").out)["step_ns"]
    faster, slower = sorted(times, key=lambda folder: times[folder])
    assert times[slower] > 1.0001 * times[faster]
    outcome = unstall("diff", faster, slower, "--fail-on-slower", "0.01%")
    assert "No change beyond noise" in outcome.out
    assert outcome.code == 0


def test_a_job_and_a_run_are_not_compared(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    outcome = unstall("diff", jobs[0], jobs[0] / "rank0.json")
    assert (outcome.code, "is a job of many ranks, and the other input is not" in outcome.err) == (2, True)


def test_the_function_gives_what_the_verb_prints(unstall: Cli, jobs: tuple[Path, Path]) -> None:
    answer = public.fleet(jobs[0], cache=False)
    assert [each.rank for each in answer.stragglers] == [1]
    assert answer.verdict.bound_by == "straggler"
    assert str(answer) == unstall("fleet", jobs[0]).out.removesuffix("\n")
