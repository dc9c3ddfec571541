"""SIGKILL at random moments of each phase of a command: what was written is not lost, and the next run works.

Each test prints its seed. UNSTALL_SEED sets it.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from faults.cases import CASES, Case, fresh, written
from faults.commands import Place, Started, files, random_of_seed, until
from faults.runs import PROGRAMS, RECORDED, Run
from fleets.jobs import job, train_ddp

pytest.importorskip("torch")
pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)

_MOMENTS = 10
_PHASES = ("start", "recording", "trace", "explanation")


def _begun(run: Run, started: Started) -> Mapping[str, Callable[[], bool]]:
    """Whether each phase of a run has begun."""
    file = f"*/{RECORDED[run.name]}"
    return {
        "start": lambda: True,
        "recording": lambda: "ready" in started.said[0],
        "trace": lambda: any(run.place.temporary.glob(file)),
        "explanation": lambda: "the trace is in" in started.said[1],
    }


def _lengths_s(run: Run) -> dict[str, float]:
    """How long each phase takes."""
    started = run.start()
    begins = []
    for begun in _begun(run, started).values():
        assert until(begun, started)
        begins.append(time.monotonic())
    assert started.ended().code == 0
    ends = [*begins[1:], time.monotonic()]
    return {phase: end - begin for phase, begin, end in zip(_PHASES, begins, ends, strict=True)}


def _kill(run: Run, phase: str, moment_s: float, moments: random.Random) -> None:
    """Kills a run so long after a phase began, and checks what it left."""
    run.clear()
    started = run.start()
    until(_begun(run, started)[phase], started)
    time.sleep(moment_s)
    began = {each: begun() for each, begun in _begun(run, started).items()}
    started.killed(moments)
    recorded = run.recorded(run.traces())  # each is whole
    if began["explanation"]:
        assert recorded, moment_s
    elif began["trace"]:
        assert recorded or run.recorded(run.recovered()), moment_s
    else:
        [*run.recovered()]


def test_a_run_that_is_killed_while_its_trace_is_written_is_recovered(tmp_path: Path) -> None:
    moments = random_of_seed()
    _kill(Run(Place(tmp_path / "run"), "virtual"), "trace", moments.uniform(0, 0.2), moments)


@pytest.mark.slow
@pytest.mark.parametrize("phase", _PHASES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_that_is_killed_has_lost_nothing_that_was_recorded(tmp_path: Path, name: str, phase: str) -> None:
    moments, run = random_of_seed(), Run(Place(tmp_path / "run"), name)
    lasts = _lengths_s(run)[phase]
    for _ in range(_MOMENTS):
        _kill(run, phase, moments.uniform(0, lasts), moments)
    run.works()


def _large_job(folder: Path) -> None:
    job(partial(train_ddp, slow=1, cause="item", steps=60), folder, ranks=3)
    assert sum(path.stat().st_size for path in folder.glob("*.json")) > 4 << 20  # read in processes


_COMMANDS = {
    **{name: CASES[name] for name in ("explain", "recover", "fleet", "compile")},
    "fleet in processes": replace(CASES["fleet"], prepare=_large_job),
}


def _started(place: Place, case: Case) -> Started:
    environment = {**place.environment, "XDG_CACHE_HOME": str(place.cache)}
    return Started([sys.executable, "-c", case.program, *case.args], place.below, environment)


def _works(place: Place, case: Case) -> tuple[str, dict[str, bytes | None]]:
    ended = _started(place, case).ended()
    assert ended.code == 0, ended
    return ended.out, written(place, case)


@pytest.mark.slow
@pytest.mark.parametrize("name", _COMMANDS)
def test_a_command_that_is_killed_leaves_its_inputs_and_whole_outputs(tmp_path: Path, name: str) -> None:
    moments, place, case = random_of_seed(), Place(tmp_path / "place"), _COMMANDS[name]
    fresh(place, case)
    began = time.monotonic()
    whole = _works(place, case)
    lasts = time.monotonic() - began
    for _ in range(_MOMENTS):
        before = fresh(place, case)
        started = _started(place, case)
        moment = moments.uniform(0, lasts)
        time.sleep(moment)
        started.killed(moments)
        there = files(place.below)
        unchanged = {output: before.get(output) for output in case.outputs}
        assert written(place, case) in (unchanged, whole[1]), moment
        assert {path: there.get(path) for path in before if path not in case.outputs}.items() <= before.items(), moment
        assert _works(place, case) == whole, moment
        assert not [*place.cache.rglob("making-*")], moment
