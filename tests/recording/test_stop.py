"""`--stop`: a recorded program ends after what was recorded, as by sys.exit() in its main thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording.recorders import Driven, Logging

from unstall.guest import active
from unstall.guest.ending import may_end_here
from unstall.recording.first_steps import FirstSteps, settings_of
from unstall.recording.journal import Journal
from unstall.recording.session import Phase
from unstall.recording.stopping import boundaries_until_recorded


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    recording = active.current()
    if recording is not None:
        recording.end("exit")


@pytest.mark.parametrize("kind", ["explicit", "optimizer", "loader", "forward"])
def test_a_session_ends_the_program_at_the_boundary_at_which_it_is_done(tmp_path: Path, kind: str) -> None:
    run = Driven(tmp_path, warmup=1, steps=1, stop=True)
    run.session.begin()
    before = 1 + (kind in ("loader", "forward"))
    warm_up_of_training = 50 if kind in ("loader", "forward") else 0  # until it is certain that no optimizer steps
    run.steps(warm_up_of_training + before + 3 + 2 + 1 + 2, took_ms=100, kind=kind)
    assert run.session.phase is Phase.PLAIN_AFTER
    with pytest.raises(SystemExit) as ended:
        run.steps(1, took_ms=100, kind=kind)
    assert (ended.value.code, run.session.phase, active.current()) == (None, Phase.OVER, None)
    run.steps(9, took_ms=100, kind=kind)  # a program that catches it goes on


@pytest.mark.parametrize(("stop", "why"), [(False, "done"), (True, "exit")])
def test_a_session_lets_the_program_go_on_otherwise(tmp_path: Path, stop: bool, why: str) -> None:
    run = Driven(tmp_path, warmup=1, steps=1, stop=stop)
    run.session.begin()
    run.steps(1 + 3 + 2, took_ms=100)
    run.session.end(why)
    run.steps(9, took_ms=100)
    assert (run.session.phase, active.current()) == (Phase.OVER, None)


def test_an_end_that_no_boundary_made_ends_the_program_at_the_next_one(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=1, steps=1, stop=True)
    run.session.begin()
    run.steps(1 + 3 + 2 + 1, took_ms=100)
    assert [event["phase"] for event in run.events("phase")][-1] == "plain_after"
    run.session._give_way()  # the program's own profiler begins
    assert run.session.phase is Phase.OVER
    with pytest.raises(SystemExit):
        run.steps(1, took_ms=100)


@pytest.mark.parametrize(("recorded", "ends"), [(2, True), (1, False)])
def test_what_the_programs_own_profiler_cut_short_is_enough_if_a_step_is_whole(
    tmp_path: Path, recorded: int, ends: bool
) -> None:
    """The first of the recorded boundaries ends the step for warm-up."""
    run = Driven(tmp_path, warmup=1, steps=9, stop=True)
    run.session.begin()
    run.steps(1 + 9 + recorded, took_ms=100)
    assert run.session.phase is Phase.RECORDING
    run.session._give_way()
    assert [event["steps"] for event in run.events("recorded")] == [recorded - 1]
    if ends:
        with pytest.raises(SystemExit):
            run.steps(1, took_ms=100)
    else:
        run.steps(9, took_ms=100)


def test_a_program_without_steps_ends_at_its_first_one(tmp_path: Path) -> None:
    run = Driven(tmp_path, stop=True)
    run.session.begin()
    assert run.session.start_by_time()
    run.session.stop_by_time()
    assert (run.session.phase, run.log) == (Phase.OVER, ["own start", "own stop"])
    with pytest.raises(SystemExit):
        run.steps(1, took_ms=100)


def test_a_thread_that_nobody_joins_is_not_ended_for_the_program(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=1, steps=1, stop=True)
    run.session.begin()
    survived, over = threading.Event(), threading.Event()

    def fetch() -> None:
        run.steps(40, took_ms=100, kind="optimizer")
        survived.set()
        over.wait(60)

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        assert survived.wait(60)
        assert run.session.phase is Phase.OVER
        with pytest.raises(SystemExit):
            run.steps(1, took_ms=100, kind="optimizer", who=2)
    finally:
        over.set()
        thread.join()
    assert may_end_here()


class _Rank(Driven):
    """One of several ranks, with first steps, whose clock is its own."""

    def __init__(self, folder: Path, recorder: Logging | None = None, **settings: Any) -> None:
        folder.mkdir()
        super().__init__(folder, recorder, stop=True, **settings)
        within = settings_of(self.options)
        self.session._first_steps = FirstSteps(
            within, lambda of: Journal(of.folder), lambda: Logging(self.log, "first"), now=self.clock
        )
        self.session.begin()
        self.session._cuda_begins()

    def boundaries_until_the_end(self, took_ms: float, kind: str, profiler_at: int = -1) -> int:
        for number in range(1, 2000):
            if number == profiler_at:
                self.session._give_way()
            try:
                self.steps(1, took_ms, kind)
            except SystemExit:
                self.session.end("exit")  # as the exit handlers do
                return number
        raise AssertionError("the rank did not end")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("explicit", {}), ("optimizer", {"warmup": 0, "steps": 1}), ("loader", {"warmup": 6}), ("forward", {"steps": 8})],
)
def test_all_ranks_end_after_the_same_number_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, settings: dict[str, Any]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    ends, over = [], []
    for number, took_ms in enumerate((1, 9, 90, 900, 40_000)):
        rank = _Rank(tmp_path / f"{number}", **settings)
        ends.append(rank.boundaries_until_the_end(took_ms, kind))
        over += [event["why"] for event in rank.events("over")]
        assert rank.log == ["first start", "first stop", "own start", "own stop"]
    for number, method in enumerate(("start", "stop"), start=5):
        rank = _Rank(tmp_path / f"{number}", Logging([], broken=method), **settings)
        ends.append(rank.boundaries_until_the_end(90, kind))
    for number, profiler_at in enumerate((3, 9, 15, 64, 70), start=7):
        ends.append(_Rank(tmp_path / f"{number}", **settings).boundaries_until_the_end(90, kind, profiler_at))
    training = 50 if kind in ("loader", "forward") else 0
    expected = training + boundaries_until_recorded(Driven(tmp_path, **settings).options)
    assert (set(ends), set(over)) == ({expected}, {"done"})


_THREADS = """\
import contextlib, queue, sys, threading
import unstall
from unstall.recording.child import arm
from unstall.recording.settings import Settings

arm(Settings(sys.argv[2], warmup=0, steps=1, stop=True, recorder="torch", lines="none").to_json())
import torch
from torch.utils.data import DataLoader

batches, over = queue.Queue(maxsize=2), threading.Event()

def fetched():
    with torch.no_grad():
        for batch in DataLoader(range(100_000)):
            batches.put(batch)
            if over.is_set():
                return

def trained():
    for _ in range(100_000):
        batches.get()
        torch.ones(4).sum()
        unstall.step()

feeder = threading.Thread(target=fetched, daemon=True)
feeder.start()
try:
    if sys.argv[1] == "main":
        trained()
    trainer = threading.Thread(target=trained)
    trainer.start()
    trainer.join()
    print("goes on")
finally:
    print("fed" if feeder.is_alive() else "hungry")
    over.set()
    while feeder.is_alive():  # at the end of Python, a thread within torch may abort the process
        with contextlib.suppress(queue.Empty):
            batches.get(timeout=0.01)
"""


@pytest.mark.ci
@pytest.mark.parametrize("thread", [pytest.param("main", marks=pytest.mark.slow), "joined"])
def test_the_thread_that_steps_is_ended_and_not_the_one_that_feeds_it(folder: Path, thread: str) -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", _THREADS, thread, str(folder)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "fed\n"), done.stderr


_SAVES = """\
import sys, torch
from torch.utils.data import DataLoader

state = [torch.zeros(20_000) for _ in range(300)]
try:
    with torch.no_grad():
        for number, batch in enumerate(DataLoader(torch.ones(4000, 4), num_workers=int(sys.argv[1]))):
            torch.save(state, f"{number % 2}.pt")  # takes longer than anything else
    print("all")
finally:
    print("cleaned up")
"""


@pytest.mark.ci
@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_no_checkpoint_is_cut_off_and_no_worker_stays(tmp_path: Path, workers: int) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "save.py").write_text(_SAVES)
    command = [sys.executable, "-m", "unstall", "run", "--stop", "--steps", "2", "--lines", "none", "save.py"]
    running = subprocess.Popen(
        [*command, str(workers)], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert (running.communicate(timeout=300)[0], running.returncode) == ("cleaned up\n", 0)
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)
    assert [len(torch.load(tmp_path / f"{number}.pt")) for number in (0, 1)] == [300, 300]


_TRAINS = """\
import atexit, torch
atexit.register(print, "at exit")
weight = torch.ones(4, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for number in range(100_000):
    weight.sum().backward()
    optimizer.step()
print("all steps")
"""
_GRAPHED = """\
import torch, unstall
weight = torch.ones(4, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
@unstall.graphed
def step():
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
for number in range(1_000):
    step()
print("all steps")
"""
_CALLS = """\
import unstall, torch
for number in range(100_000):
    torch.ones(4, device="cuda").add(1)
    {}
print("all steps")
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("program", "options", "printed", "said"),
    [
        (_TRAINS, "--steps 2", "at exit\n", "--stop ended the program after 6 steps"),
        (_GRAPHED, "--steps 9", "", "--stop ended the program after 13 steps"),
        pytest.param(
            *(_CALLS.format("unstall.step()"), "--after 0.001 --for 0.001", "", "--stop ended the program after "),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            _TRAINS.replace("100_000", "20"),
            "--steps 100",
            "all steps\nat exit\n",
            "--stop did not end the program: it ended after 20 steps, before the 3 for warm-up and the 100 to record "
            "were over: give fewer --steps\n",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            _CALLS.format("if number > 20: break"),
            "",
            "all steps\n",
            "--stop did not end the program: unstall saw none of ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_program_on_a_virtual_gpu_ends_after_what_was_asked_for(
    tmp_path: Path, program: str, options: str, printed: str, said: str
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--stop", *options.split(), "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert f"unstall: {said}" in done.stderr
    assert (tmp_path / "train.trace.json.gz").exists()
