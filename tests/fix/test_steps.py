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
    for _ in unstall.stream_map(multiply, items, **options):
        pass

def multiply(x):
    return (x @ weights).detach()

def fetched(each=lambda: None):
    for x in unstall.prefetch(items):
        (x @ weights).sum().backward()
        each()

for strategy in ("streams", "engines", "plain"):
    marks, by, count = found(lambda: mapped() if strategy == "plain" else mapped(strategy=strategy))
    assert (marks, by) == ("loader", "annotation") and 40 - 6 <= count <= 40, (strategy, marks, by, count)
marks, by, count = found(fetched)
assert (marks, by) == ("loader", "annotation") and 40 - 6 <= count <= 40, (marks, by, count)
assert found(lambda: fetched(unstall.step)) == ("explicit", "annotation", 40)

def twice(loop):
    with unstall.virtual_gpu("h200") as gpu:
        for _ in range(2):
            loop()
            between = gpu.now_ns()
            for _ in range(200):
                (weights @ weights).sum().item()
            between = gpu.now_ns() - between
    steps = find_steps(gpu.timeline())
    assert 40 - 6 <= len(steps) <= 40, steps
    assert steps.left_out.loops == 40, steps.left_out
    assert steps.window_end - steps.window_start < between, "what follows a loop is no step"

twice(lambda: mapped(strategy="streams"))
twice(fetched)

optimizer = torch.optim.SGD([weights], lr=0.0)
assert found(lambda: fetched(optimizer.step))[1] == "optimizer"
print("FOUND")
"""

GRAPHED = """
import torch
import unstall
from unstall.locate.steps import find_steps

nn = torch.nn
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images = torch.randn(8, 3, 32, 32, device="cuda")

def train(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss

def predict(x):
    with torch.no_grad():
        return model(x).softmax(1).amax()

def found(fn, others):
    fast = unstall.graphed(fn)
    with unstall.virtual_gpu("h200") as gpu:
        for _ in range(60):
            fast(images).item()
        for _ in range(others):
            fn(images).item()
    assert fast.stats().hits == 58
    timeline = gpu.timeline()
    return timeline.meta.step_marks, len(find_steps(timeline))

"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "others", "by", "count"),
    [("train", 0, "optimizer", 56), ("train", 10, "optimizer", 66), ("predict", 0, "forward", 56)],
)
def test_calls_that_a_graph_serves_are_the_steps_that_they_stand_for_and_so_are_those_run_later(
    tmp_path: Path, function: str, others: int, by: str, count: int
) -> None:
    said = on_virtual_gpu(tmp_path, f"{GRAPHED}\nprint(*found({function}, {others}))")
    assert said.splitlines()[0] == f"{by} {count}"


BY_HAND = """
def capture(fn):
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            fn(images)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        fn(images)
    return graph

with unstall.virtual_gpu("h200") as gpu:
    graph = capture(train)
    other = capture(lambda x: x * 2)  # captures no step
    for _ in range(40):
        graph.replay()
        other.replay()
timeline = gpu.timeline()
print(timeline.meta.step_marks, len(find_steps(timeline)))
"""


@pytest.mark.ci
def test_each_replay_of_a_step_that_the_program_captured_itself_is_a_step(tmp_path: Path) -> None:
    said = on_virtual_gpu(tmp_path, GRAPHED + BY_HAND)
    assert said.splitlines()[0] == "optimizer 39"


@pytest.mark.slow
def test_items_that_a_helper_hands_on_are_steps_unless_the_program_says_what_is(tmp_path: Path) -> None:
    assert "FOUND" in on_virtual_gpu(tmp_path, LOOPS)
