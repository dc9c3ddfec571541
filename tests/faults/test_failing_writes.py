"""Each call by which unstall changes a folder fails in turn: what was there stays, and the next run works."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from faults.cases import CASES, IMPORTS, Case, fresh, written
from faults.commands import files
from faults.failing import BROKEN, FULL, KILLED, NO_ROOM, Failing, Fault, Warm

pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)


@pytest.fixture(scope="module")
def warm(failing_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    warm = Warm(Failing(failing_library, tmp_path_factory.mktemp("warm") / "below"), IMPORTS)
    try:
        yield warm
    finally:
        warm.close()


def _works(warm: Warm, case: Case) -> tuple[str, dict[str, bytes | None]]:
    """What the command prints and writes where nothing fails."""
    warm.failing.arm(0, KILLED)
    ended = warm.run(case.program, *case.args)
    assert ended.code == 0, ended.err
    return ended.out, written(warm.failing, case)


_FAST = {
    "explain": (FULL, 4),
    "recover": (KILLED, 3),
    "recover anew": (NO_ROOM, 3),
    "fleet": (FULL, 14),
    "baseline": (BROKEN, 2),
    "calibrate": (BROKEN, 4),
    "compile": (FULL, 14),
}  # the fault, and at which calls: each third, for one
_LAWS = [
    *(pytest.param(name, fault, every, id=f"{name}-{fault}-some") for name, (fault, every) in _FAST.items()),
    *(
        pytest.param(name, fault, 1, id=f"{name}-{fault}-each", marks=pytest.mark.slow)
        for name in CASES
        for fault in (NO_ROOM, FULL, BROKEN, KILLED)
    ),
]


@pytest.mark.parametrize(("name", "fault", "every"), _LAWS)
def test_whatever_fails_nothing_is_lost_or_half_written_and_the_next_run_works(
    warm: Warm, name: str, fault: Fault, every: int
) -> None:
    case, failing = CASES[name], warm.failing
    fresh(failing, case)
    whole = _works(warm, case)
    for at in count(1, every):
        before = fresh(failing, case)
        failing.arm(at, fault)
        ended = warm.run(case.program, *case.args)
        if not (what := failing.reached):
            break
        there = files(failing.below)
        told = f"{what}: {ended}"
        unchanged = {output: before.get(output) for output in case.outputs}
        now = written(failing, case)
        if fault is KILLED:
            assert ended.code == -9 or name == "compile", told  # a compiler was killed
            claimed = {output: b"" for output in now if case.old is None}
            assert now in (unchanged, claimed, whole[1]), told
            for output in claimed if now == claimed else ():
                (failing.below / output).unlink()
        elif ended.code == 0:
            assert (ended.out, now) == whole, told
        else:
            assert ended.code == case.refused, told
            assert now == unchanged, told
            assert any(reason in ended.err for reason in case.reasons(fault)), told
            new = {path: data for path, data in there.items() if path not in before and not path.startswith("cache/")}
            kept = name == "calibrate" and ended.err.startswith("measured") and not fault.all
            assert list(new.values()) == [*whole[1].values()] * kept, told
            assert all(str(failing.below / path) in ended.err for path in new), told
        assert {path: there.get(path) for path in before if path not in case.outputs}.items() <= before.items(), told
        assert _works(warm, case) == whole, told
    assert at > 3
