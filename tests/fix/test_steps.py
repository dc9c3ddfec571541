"""Loops through helpers, as a report on the virtual GPU tells their steps apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from fix.on_a_gpu import on_virtual_gpu

LOOPS = """
import sys
import torch
import unstall
from unstall.locate.steps import find_steps

weights = torch.randn(256, 256, device="cuda", requires_grad=True)
items = [torch.randn(256, 256).pin_memory() for _ in range(40)]

def found(loop):
    with unstall.virtual_gpu("h200") as gpu:
        loop()
    timeline = gpu.timeline()
    steps = find_steps(timeline)
    return timeline.meta.step_marks, steps.found_by, len(steps)

def mapped(**options):
    for _ in unstall.stream_map(lambda x: (x @ weights).detach(), items, **options):
        pass

def fetched(each=lambda: None):
    for x in unstall.prefetch(items):
        (x @ weights).sum().backward()
        each()

for strategy in ("streams", "engines", "plain"):
    marks, by, count = found(lambda: mapped() if strategy == "plain" else mapped(strategy=strategy))
    assert (marks, by) == ("loader", "annotation") and 40 - 6 <= count < 40, (strategy, marks, by, count)
marks, by, count = found(fetched)
assert (marks, by) == ("loader", "annotation") and 40 - 6 <= count < 40, (marks, by, count)
assert found(lambda: fetched(unstall.step)) == ("explicit", "annotation", 39)
optimizer = torch.optim.SGD([weights], lr=0.0)
assert found(lambda: fetched(optimizer.step))[1] == "optimizer"
print("FOUND")
"""


@pytest.mark.slow
def test_items_that_a_helper_hands_on_are_steps_unless_the_program_says_what_is(tmp_path: Path) -> None:
    assert "FOUND" in on_virtual_gpu(tmp_path, LOOPS)
