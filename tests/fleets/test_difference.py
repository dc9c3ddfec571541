"""What changed from one job to another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fleets.jobs import Arrival, RankTrace, job, train_ddp
from msgspec.structs import replace

from unstall.fleets.difference import compare
from unstall.fleets.fleet import explain_fleet
from unstall.fleets.result import MOST_LINES, FleetResult
from unstall.report.fleet_diff import conclusion
from unstall.result import Where


def explained(folder: Path, train: object, seed: int = 0, **options: object) -> FleetResult:
    folder.mkdir()
    job(train, folder, ranks=8, host_jitter=0.05, kernel_jitter=0.02, **options)  # type: ignore[arg-type]
    return explain_fleet(folder, cache=False)


def slow(rank: RankTrace, late: tuple[int, ...]) -> Iterator[Arrival]:
    return train_ddp(rank, slow=rank.rank if rank.rank in late else None, cause="loader" if rank.rank == 2 else "item")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, ...], FleetResult]:
    folder = tmp_path_factory.mktemp("jobs")
    return {late: explained(folder / f"{late}", partial(slow, late=late)) for late in ((1, 2), (2,), (1,), ())}


def test_what_was_promised_is_without_those_that_are_gone(jobs: dict[tuple[int, ...], FleetResult]) -> None:
    both = jobs[1, 2]
    assert [each.rank for each in both.stragglers] == [2, 1]
    mended = compare(both, jobs[()])
    assert mended.promised_ranks == (2, 1)
    assert mended.promised_ns == pytest.approx(jobs[()].step_ns, rel=0.03)
    assert "without the delay of ranks 1-2, which no longer make the others wait" in conclusion(mended)
    first = compare(both, jobs[1,])
    assert (first.promised_ranks, first.promised_ns) == ((2,), both.replayed_step_ns - both.stragglers[0].gain_ns)
    second = compare(both, jobs[2,])
    assert second.promised_ranks == (2,)
    assert "rank 2, which still makes the others wait" in conclusion(second)


def test_too_few_steps_tell_no_difference_from_noise(tmp_path: Path) -> None:
    both = [explained(tmp_path / name, partial(train_ddp, steps=2, kernels=5 + at)) for at, name in enumerate("ab")]
    found = compare(*both)
    assert found.beyond_noise is None
    assert "the steps are too few to tell whether that is more than noise" in conclusion(found)


def test_a_line_that_leaves_the_costliest_has_not_become_free(jobs: dict[tuple[int, ...], FleetResult]) -> None:
    one = jobs[()]
    many = tuple(
        replace(one.lines[0], where=Where(file="a.py", line=at), device_ns=10_000_000, host_ns=0, wait_ns=0)
        for at in range(MOST_LINES)
    )
    cheap = replace(many[0], where=Where(file="b.py", line=1), device_ns=9_000_000)
    before, after = replace(one, lines=(*many[1:], cheap)), replace(one, lines=many)
    costs = {each.where.file: each.cost_ns for each in compare(before, after).lines}
    assert "b.py" not in costs
    assert costs.get("a.py", (0, 0)) == (9_000_000, 10_000_000)
