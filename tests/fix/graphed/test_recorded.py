"""What a recording of a graphed program says of it: calls that graphs serve are its steps, and proofs are not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fix.graphed.harness import batches, mlp, on_tape, training_step
from recording.recorders import Driven

import unstall
from unstall.guest import active

_PROGRAM = """
import torch, unstall

net = torch.nn.Sequential(*[part for _ in range(8) for part in (torch.nn.Linear(64, 64), torch.nn.ReLU())]).cuda()
fast = unstall.graphed(net.eval())
with torch.no_grad():
    for size in (4, 5):
        for _ in range(12):
            fast(torch.randn(size, 64, device="cuda"))
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Driven]:
    """A recording that has not begun, and never leaves its warm-up."""
    made = Driven(tmp_path, warmup=1_000)
    yield made
    made.session.end("done")
    assert active.current() is None


def _steps(run: Driven) -> int:
    """How many steps the recording saw until now, when it ends."""
    run.session.end("done")
    steps: int = run.events("over")[0]["steps"]
    return steps


def _trained(count: int) -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
    model = mlp()
    return on_tape(training_step(model, torch.optim.SGD(model.parameters(), lr=0.1))), batches(count)


def test_each_call_of_a_graphed_training_step_is_one_step_whether_it_is_run_captured_or_replayed(run: Driven) -> None:
    step, data = _trained(12)
    run.session.begin()
    for batch in data:
        step(*batch)
    assert (step.stats().hits, _steps(run)) == (10, 12)


def test_what_a_recording_asks_is_not_asked_by_the_function(run: Driven) -> None:
    """Its hooks ask at each step whether a graph is being captured."""
    step, data = _trained(4)
    run.session.begin()
    for batch in data:
        step(*batch)
    assert step.stats().hits
    assert "asks whether it is captured" not in str(step.stats())


def test_a_recording_that_begins_after_the_capture_sees_the_steps_too(run: Driven) -> None:
    step, data = _trained(12)
    for batch in data[:5]:
        step(*batch)
    run.session.begin()
    for batch in data[5:]:
        step(*batch)
    assert _steps(run) == 7


def test_calls_of_a_model_in_a_graphed_function_are_steps_though_autograd_is_on_around_them(run: Driven) -> None:
    model = mlp().eval()

    def predict(inputs: torch.Tensor) -> Any:
        with torch.no_grad():
            return model(inputs).softmax(1)

    fast = on_tape(predict)
    for inputs, _ in batches(5):
        fast(inputs)
    run.session.begin()
    for inputs, _ in batches(7):
        fast(inputs)
    assert _steps(run) == 7


def test_a_graphed_function_without_a_step_marks_none(run: Driven) -> None:
    fast = on_tape(lambda x: x.sin().cos())
    run.session.begin()
    for inputs, _ in batches(6):
        fast(inputs)
    assert fast.stats().hits == 4
    assert not run.session.seen


def test_a_step_that_a_graphed_function_marks_itself_is_marked_once_a_call(run: Driven) -> None:
    def double(inputs: torch.Tensor) -> torch.Tensor:
        unstall.step()
        return inputs * 2

    fast = on_tape(double)
    for inputs, _ in batches(5):
        fast(inputs)
    run.session.begin()
    for inputs, _ in batches(7):
        fast(inputs)
    other = on_tape(double)
    for inputs, _ in batches(6):
        other(inputs)
    assert (fast.stats().hits, other.stats().hits) == (10, 4)
    assert _steps(run) == 7 + 6


@pytest.mark.slow
def test_waits_of_proofs_are_no_findings_and_what_they_took_is_said(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    _unstall(tmp_path, "run", "--gpu", "h200", "--quiet", "--trace", "run.trace.json.gz", "program.py")
    report = json.loads(_unstall(tmp_path, "explain", "run.trace.json.gz", "--json"))
    assert not [finding for finding in report["findings"] if finding["rule"].startswith("sync")]
    assert report["steps"]["left_out"]["proving"] > 0
    assert "unstall.graphed proves its graphs" in report["verdict"]["text"]


def _unstall(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "unstall", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
