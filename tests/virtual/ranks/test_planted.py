"""Jobs on virtual GPUs in which one rank is slower, for a cause that was planted: what the report of the job says."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from fleets.jitter import Recorded
from virtual.ranks.running import PROGRAMS, run

from unstall.fleets.fleet import explain_fleet
from unstall.fleets.result import FleetResult

slow = pytest.mark.slow
CAUSES = {
    "loader": "data loading",
    "item": "wait",
    "backward": "sleep",
    "sequence": "more work",
    "clocks": "clocks",
}


def planted(job: str, ranks: int, folder: Path, *causes: str) -> Path:
    """Runs the job once for each cause."""
    run("planted", [[str(folder), job, f"h200:{ranks}", *causes]] * ranks)
    return folder


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the traces of each job, by cause: of 8 ranks each, of which rank 3 is slower."""
    found = {}
    for job in ("ddp", "fsdp"):
        found[job] = planted(job, 8, tmp_path_factory.mktemp(job), "none", *CAUSES.keys() - {"clocks"})
        run("planted", [[str(found[job]), job, "h200:8,3@0.8", "clocks"]] * 8)
    return found


@cache
def explained(folder: Path, *edits: str) -> FleetResult:
    return explain_fleet(folder, edits=edits, cache=False)


def line_of(cause: str) -> int:
    """The line of the program at which a cause is planted."""
    lines = (PROGRAMS / "planted.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"# PLANTED {cause}" in line)


def named(found: FleetResult) -> list[tuple[int, str, int | None]]:
    """The rank, the kind of its first cause, and the line, of each straggler."""
    return [(each.rank, each.causes[0].kind, each.causes[0].where.line) for each in found.stragglers]


@pytest.mark.ci
def test_a_wait_in_one_rank_of_two_is_named_and_what_the_job_takes_without_it(tmp_path: Path) -> None:
    folder = planted("ddp", 2, tmp_path, "none", "item")
    found, good = explained(folder / "item"), explained(folder / "none")
    assert named(good) == []
    assert named(found) == [(1, "wait", line_of("item"))]
    # The replay of a saved trace does not know which events have timing, as those of DDP's timers do.
    assert abs(good.error_ns) <= 0.001 * good.step_ns
    assert found.replayed_step_ns - found.stragglers[0].gain_ns == pytest.approx(good.step_ns, rel=0.03)


@slow
@pytest.mark.parametrize("job", ["ddp", "fsdp"])
@pytest.mark.parametrize(("cause", "kind"), CAUSES.items())
def test_the_rank_the_cause_and_the_line_are_named_and_the_step_without_it(
    traces: dict[str, Path], job: str, cause: str, kind: str
) -> None:
    found, good = explained(traces[job] / cause, "no-stragglers"), explained(traces[job] / "none")
    # Slower clocks have no line: the line named is where most of the kernels' time goes, as with longer input.
    at = line_of("sequence" if cause == "clocks" else cause)
    assert named(found) == [(3, kind, at)]
    assert found.verdict.bound_by == "straggler"
    if cause in ("sequence", "clocks"):
        text = found.stragglers[0].causes[0].text
        assert "for the same work" in text if cause == "clocks" else re.search(r"have 1\.[45]\d* times the work", text)
    assert found.step_ns > 1.1 * good.step_ns
    assert found.edits[0].step_ns == pytest.approx(good.step_ns, rel=0.03)


@slow
@pytest.mark.parametrize("job", ["pipeline", "1f1b"])
def test_a_stage_with_twice_the_layers_is_named_and_what_balance_gives(tmp_path: Path, job: str) -> None:
    folder = planted(job, 4, tmp_path, "none", "layers", "balanced", "loader")
    found = explained(folder / "layers", "balance-stages")
    assert found.verdict.bound_by == "stages"
    assert found.verdict.text.startswith("Stage 1 (rank 1) makes the pipeline wait")
    cause = found.stages[1].causes[0]
    assert (cause.kind, cause.where.line) == ("more work", line_of("layers"))
    assert "2 times as many kernels" in cause.text
    assert found.edits[0].step_ns == pytest.approx(explained(folder / "balanced").step_ns, rel=0.03)
    good = explained(folder / "none")
    if job == "pipeline":  # with 1F1B, stages call a different number of batches
        like = explained(folder / "layers", "rank-like:1:2").edits[0]
        assert like.step_ns == pytest.approx(good.step_ns, rel=0.03)
    late = explained(folder / "loader", "balance-stages")
    assert (late.stages[1].causes[0].kind, late.stages[1].causes[0].where.line) == ("sleep", line_of("stage"))
    assert late.edits[0].step_ns == pytest.approx(good.step_ns, rel=0.03)  # no other stage could sleep for it


@slow
@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_jitter_makes_no_straggler(traces: dict[str, Path], job: str, by_step: bool, tmp_path: Path) -> None:
    recorded = Recorded.of(sorted((traces[job] / "none").iterdir()))
    recorded.jittered(tmp_path / "none", 0, host=0, kernels=0)
    good = explained(traces[job] / "none")
    assert explained(tmp_path / "none").step_ns == good.replayed_step_ns
    # The replay of a saved trace does not know which kernels waited for room on the device's multiprocessors, either.
    assert abs(good.error_ns) <= 0.001 * good.step_ns
    for seed in range(50):
        folder = tmp_path / str(seed)
        recorded.jittered(folder, seed, by_step=by_step)
        found = explained(folder)
        assert found.own_spread > 0
        assert named(found) == []
