"""Programs of 1 to 60 steps, on the virtual GPU: each has a report, whatever part of it was asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

_STEPS = (1, 3, 5, 60)
_ASKED = ("", "--warmup 6", "--warmup 0 --steps 1", "--warmup 70", "--after 1000")

_PROGRAMS = """\
import json, sys
import unstall
gpu = unstall.virtual_gpu("h200", numerics="skip")
with gpu:
    import torch
from unstall.answers.explain import explain
from unstall.cli import parse
from unstall.cli._virtual_part import part_asked_for

def trained(count):
    model = torch.nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(count):
        loss = model(torch.randn(8, 64).cuda()).sum()
        loss.backward()
        optimizer.step()
        loss.item()

def called(count):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).to("cuda")
    for number in range(count):  # no two calls launch the same
        model(torch.ones(8, 64, device="cuda"))[: number + 1].argmax().item()

def scheduled(count):
    sample, model = torch.randn(1, 4, 8, 8, device="cuda"), torch.nn.Conv2d(4, 4, 3, padding=1).to("cuda")
    for step in range(count):
        sample = sample - model(sample) / (step + 1)

def counted(count):
    for _ in range(count):
        torch.ones(8, device="cuda").add(1).cpu()
        unstall.step()

for program in (trained, called, scheduled, counted):
    for count in map(int, sys.argv[1].split()):
        with unstall.virtual_gpu("h200", numerics="skip") as gpu, torch.set_grad_enabled(program is trained):
            program(count)
        timeline = gpu.timeline()
        for asked in sys.argv[2:]:
            part = part_asked_for(timeline, parse(["run", *asked.split(), "train.py"]))
            result = explain(part).result
            print(json.dumps([program.__name__, count, asked, part.meta.shortfall, len(part.device),
                              result.steps.count, result.verdict.text]))
"""


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, int, str], tuple[str | None, int, int, str]]:
    """Of each program, number of steps and options: the shortfall, device ops, steps and verdict of its report."""
    command = [sys.executable, "-c", _PROGRAMS, " ".join(map(str, _STEPS)), *_ASKED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {(row[0], row[1], row[2]): tuple(row[3:]) for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("asked", _ASKED)
@pytest.mark.parametrize("steps", _STEPS)
@pytest.mark.parametrize("program", ["trained", "called", "scheduled", "counted"])
def test_a_program_of_a_few_steps_has_a_report_that_begins_with_what_it_lacks(
    told: dict[tuple[str, int, str], tuple[str | None, int, int, str]], program: str, steps: int, asked: str
) -> None:
    shortfall, device_ops, found, verdict = told[program, steps, asked]
    assert device_ops > 0
    assert found >= 1
    if shortfall is not None:
        assert verdict.startswith(f"{shortfall[0].upper()}{shortfall[1:]}. ")
    if asked in ("--warmup 70", "--after 1000"):  # nothing is left of any of them
        assert shortfall is not None
        assert shortfall.startswith("this is the whole run, since ")
