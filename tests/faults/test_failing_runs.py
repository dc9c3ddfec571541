"""While `unstall run` runs a program, one call by which it changes a folder fails, in any of its processes.

The program ends as it would. Its recording is in a trace, or can be recovered, or the exit code and a sentence say that
it is lost. The next run works. Each test prints its seed. UNSTALL_SEED sets it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from faults.commands import Ended, random_of_seed
from faults.failing import BROKEN, FULL, NO_ROOM, Failing, Fault
from faults.runs import LAST_LINE, PROGRAMS, Run

pytest.importorskip("torch")

_SOME = 10
_OF_ALL = range(7, 20)  # calls that each program makes


@pytest.mark.ci
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_on_a_disk_that_becomes_full_keeps_what_it_can(failing_library: Path, tmp_path: Path, name: str) -> None:
    _fail(Run(Failing(failing_library, tmp_path / "run"), name), random_of_seed().choice(_OF_ALL), FULL)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [FULL, NO_ROOM, BROKEN], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_keeps_what_it_recorded_whatever_fails(
    failing_library: Path, tmp_path: Path, name: str, fault: Fault
) -> None:
    chosen, failing = random_of_seed(), Failing(failing_library, tmp_path / "run")
    run = Run(failing, name)
    run.works()
    calls = range(1, failing.calls + 1)
    assert len(calls) >= _OF_ALL.stop
    for number in chosen.sample(calls, _SOME):
        _fail(run, number, fault)
        run.works()


def _fail(run: Run, number: int, fault: Fault) -> None:
    """Makes a call of a run fail, and checks what the run left behind."""
    failing = run.place
    assert isinstance(failing, Failing)
    run.clear()
    failing.arm(number, fault)
    ended = run.start().ended()
    assert failing.reached, number
    what = f"{number}, {failing.reached}"
    failing.arm(0, fault)
    _check(run, ended, fault, what)


def _check(run: Run, ended: Ended, fault: Fault, what: str) -> None:
    """Checks what a run left behind in which a call failed."""
    told = f"{what}: {ended}"
    if not ended.out:  # refused before the program began
        assert ended.code == 2, told
        assert re.search(r"unstall: .*(No space left on device|Input/output error)", ended.err), told
        assert run.traces() == [], told
        return
    assert LAST_LINE in ended.out, told
    assert not [*run.place.below.glob(".*")], told
    if ended.code == 0:
        assert run.recorded(run.traces()) or re.search("incomplete|nothing was recorded", ended.err), told
        return
    assert ended.code == 3, told
    assert run.traces() == [], told
    assert run.recorded(run.recovered()) or re.search("no room|nothing was recorded", ended.err) or fault.all, told
