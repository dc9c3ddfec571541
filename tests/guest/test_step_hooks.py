"""Marks as torch's own loops make them, on the CPU; and torch as it was, once they are no longer wanted."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recording.recorders import Driven

import unstall
from unstall.guest import active, step_hooks, steps
from unstall.guest.step_source import StepSource
from unstall.recording.session import Phase

torch = pytest.importorskip("torch")

Marked = list[tuple[str, int]]
needs_monitoring = pytest.mark.python(least=(3, 12))


@contextlib.contextmanager
def _installed() -> Iterator[tuple[Marked, step_hooks.StepHooks]]:
    marked: Marked = []
    hooks = step_hooks.install(lambda kind, who: marked.append((kind, who)))
    try:
        yield marked, hooks
    finally:
        hooks.remove()


def _kinds(marked: Marked, *kinds: str) -> list[str]:
    return [kind for kind, _ in marked if kind in kinds]


def _optimizer_hooks() -> list[object]:
    return list(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks.values())


def _loader(batches: int, workers: int = 0) -> Any:
    return torch.utils.data.DataLoader(torch.ones(batches * 2, 4), batch_size=2, num_workers=workers)


def _step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    """A session that has begun; its clock shows 100 ms more at every look."""
    driven: list[Driven] = []

    def begin(**settings: Any) -> Driven:
        made = Driven(tmp_path, **settings)
        driven.append(made)
        ticking = made.clock

        def now() -> int:
            ticking.ns += 100_000_000
            return ticking.ns

        made.session._now = now
        made.session.begin()
        return made

    yield begin
    for made in driven:
        made.session.end("done")
    assert active.current() is None


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_each_step_of_an_optimizer_is_a_mark(name: str) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)
    with _installed() as (marked, _):
        for _ in range(3):
            _step(model, optimizer)
    assert [mark for mark in marked if mark[0] == "optimizer"] == [("optimizer", id(optimizer))] * 3
    _step(model, optimizer)
    assert len(_kinds(marked, "optimizer")) == 3


class _Extended(torch.optim.SGD):  # type: ignore[misc, name-defined]
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class _Around(torch.optim.SGD):  # type: ignore[misc, name-defined]
    """Steps another one for each step of its own."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner.param_groups[0]["params"], lr=0.1)
        self.inner = inner

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


@pytest.mark.parametrize("make", [lambda plain: _Extended(plain.param_groups[0]["params"], lr=0.1), _Around])
def test_a_step_within_an_optimizers_step_is_a_part_of_that(make: Callable[[Any], Any]) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = make(torch.optim.SGD(model.parameters(), lr=0.1))
    with _installed() as (marked, _):
        for _ in range(3):
            _step(model, optimizer)
    assert [mark for mark in marked if mark[0] == "optimizer"] == [("optimizer", id(optimizer))] * 3


def test_each_batch_of_a_loader_is_a_mark_of_its_data_set() -> None:
    loader = _loader(batches=3)
    with _installed() as (marked, _):
        for _epoch in range(2):
            for _batch in loader:
                pass
    assert [mark for mark in marked if mark[0] == "loader"] == [("loader", id(loader.dataset))] * 6


def test_a_loader_that_has_no_more_batches_or_raises_ends_its_loop(tmp_path: Path) -> None:
    class Broken(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return [1, 2][index]

    loader = _loader(batches=3)
    told: list[object] = []
    broken = torch.utils.data.DataLoader(Broken())
    hooks = step_hooks.install(lambda kind, who: told.append("batch"), lambda kind, who: told.append((kind, who)))
    try:
        for _epoch in range(2):
            for _batch in loader:
                pass
        with pytest.raises(IndexError):
            list(broken)
        next(iter(loader))  # the loop may go on
        handed_on = steps.HandedOn(iter(loader))  # whoever hands the batches on tells when the loop ends
        session = Driven(tmp_path, steps=1).session
        session.begin()
        list(handed_on)
        session.end("exit")
    finally:
        hooks.remove()
    of_loader, of_broken = ("loader", id(loader.dataset)), ("loader", id(broken.dataset))
    batches = ["batch"] * 3
    assert told == [*batches, of_loader, *batches, of_loader, *batches[:2], of_broken, "batch"]


def test_nothing_is_left_of_the_hooks() -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    before = iterator.__next__, _optimizer_hooks()
    with _installed():
        assert iterator.__next__ is not before[0]
    assert (iterator.__next__, _optimizer_hooks()) == before


def test_a_loader_that_somebody_else_wrapped_meanwhile_keeps_working() -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    original = iterator.__next__
    seen: list[int] = []
    try:
        with _installed() as (marked, _):
            ours = iterator.__next__

            def theirs(self: Any) -> Any:
                seen.append(1)
                return ours(self)

            iterator.__next__ = theirs
        assert len(list(_loader(batches=3))) == 3
        assert len(seen) == 4  # the last one finds the end
        assert _kinds(marked, "loader") == []
    finally:
        iterator.__next__ = original


def test_a_training_loop_is_recorded_by_its_optimizer(run: Callable[..., Driven]) -> None:
    driven = run(warmup=3, steps=5)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _batch in _loader(batches=40):
        _step(model, optimizer)
    assert driven.session.phase is Phase.OVER
    (recorded,) = driven.events("recorded")
    assert (recorded["by"], recorded["steps"]) == ("optimizer", 5)
    assert [event["which"] for event in driven.events("plain")] == ["before", "after"]


def test_a_gan_is_recorded_by_its_generator(run: Callable[..., Driven]) -> None:
    driven = run(warmup=3, steps=5)
    critic, generator = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    of_critic, of_generator = (torch.optim.Adam(net.parameters()) for net in (critic, generator))
    logged: list[int] = []
    while len(driven.log) < 2:
        for _ in range(5):
            _step(critic, of_critic)
        _step(generator, of_generator)
        logged.append(len(driven.log))
    assert logged.index(1) + 1 == 3 + 5
    assert len(logged) == 3 + 5 + 1 + 5
    assert driven.events("plain")[0]["steps"] == 5


def test_inference_is_recorded_by_its_loader(run: Callable[..., Driven]) -> None:
    driven = run(warmup=2, steps=3)
    model = torch.nn.Linear(4, 4)
    with torch.no_grad():
        for batch in _loader(batches=30):
            model(batch)
    assert driven.events("recorded")[0]["by"] == "loader"


def test_what_a_helper_hands_on_is_a_mark_and_what_it_iterates_is_none(run: Callable[..., Driven]) -> None:
    driven = run(warmup=50)
    loader, model = _loader(batches=6), torch.nn.Linear(4, 4)
    with torch.no_grad():
        for batch in unstall.prefetch(loader):
            model(batch)
        list(unstall.stream_map(model, unstall.prefetch(loader)))
    tally = driven.session._steps
    assert [tally.count(StepSource("loader", id(who))) for who in (loader, model, loader.dataset)] == [6, 6, 0]


def test_a_comparison_has_no_steps_of_the_program(run: Callable[..., Driven]) -> None:
    driven = run(warmup=50)

    def twice(batch: Any) -> Any:
        unstall.step()
        return 2 * batch

    source = StepSource("explicit", 0)
    unstall.compare_numbers(twice, torch.ones(2, 4), across=["repeat"])
    assert driven.session._steps.count(source) == 0
    twice(torch.ones(2, 4))
    assert driven.session._steps.count(source) == 1


def test_what_a_helper_hands_on_within_a_comparison_is_no_mark(run: Callable[..., Driven]) -> None:
    driven = run(warmup=50)
    loader, model = _loader(batches=6), torch.nn.Linear(4, 4)
    with torch.no_grad():
        with steps.ignoring_steps():
            list(map(model, unstall.prefetch(loader)))
        list(map(model, unstall.prefetch(loader)))
    assert driven.session._steps.count(StepSource("loader", id(loader))) == 6


def test_a_loop_of_the_programs_own_steps_is_recorded_by_those(run: Callable[..., Driven]) -> None:
    driven = run(warmup=2, steps=3)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(100):
        _step(model, optimizer)
        if number % 4 == 3:
            driven.session.step_boundary("explicit", 0)
    (recorded,) = driven.events("recorded")
    assert (recorded["by"], recorded["steps"]) == ("explicit", 3)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # of torch's profiler's ways
def test_a_recording_waits_for_the_programs_own_profiler(run: Callable[..., Driven]) -> None:
    driven = run(warmup=1, steps=3)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        for _ in range(20):
            _step(model, optimizer)
    assert driven.log == []
    assert "torch.profiler" in driven.events("waiting")[0]["why"]
    for _ in range(4):
        _step(model, optimizer)
    assert driven.log == ["own start"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch's profiler's ways
@pytest.mark.parametrize("warm_up", [0, 1])
def test_a_recording_ends_as_the_programs_own_profiler_begins(run: Callable[..., Driven], warm_up: int) -> None:
    driven = run(warmup=1, steps=3)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(7):
        _step(model, optimizer)
    assert driven.log == ["own start"]
    schedule = torch.profiler.schedule(wait=0, warmup=warm_up, active=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule):
        assert driven.log == ["own start", "own stop"]
    assert driven.events("recorded")[0]["steps"] == 2
    assert driven.events("over")[0]["why"] == "profiler"


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch's profiler's ways
def test_no_recording_begins_while_the_programs_own_profiler_warms_up(run: Callable[..., Driven]) -> None:
    driven = run(warmup=1, steps=3)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.profiler.schedule(wait=0, warmup=20, active=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule):
        for _ in range(20):
            _step(model, optimizer)
    assert driven.log == []
    for _ in range(7):
        _step(model, optimizer)
    assert driven.log == ["own start"]


def test_the_hooks_are_gone_when_the_recording_is_over(run: Callable[..., Driven]) -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    before = iterator.__next__, _optimizer_hooks(), len(torch.cuda._queued_calls)
    driven = run(warmup=1, steps=1)
    assert len(torch.cuda._queued_calls) == before[2] + 1
    driven.steps(20, took_ms=100)
    assert driven.session.phase is Phase.OVER
    after = iterator.__next__, _optimizer_hooks(), len(torch.cuda._queued_calls)
    assert after == before


@pytest.mark.slow
def test_loader_workers_of_a_recorded_program_are_plain(run: Callable[..., Driven]) -> None:
    driven = run(warmup=2, steps=3)
    with torch.no_grad():
        total = sum(float(batch.sum()) for batch in _loader(batches=30, workers=2))
    assert total == 30 * 8
    assert driven.events("recorded")[0]["by"] == "loader"
    assert len(driven.events("over")) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch.compile's own imports
def test_a_compiled_step_has_no_graph_break_of_ours() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    plain = torch._dynamo.explain(optimizer.step)().graph_break_count
    with _installed() as (marked, _):
        torch._dynamo.reset()
        assert torch._dynamo.explain(optimizer.step)().graph_break_count == plain
        compiled = torch.compile(optimizer.step, backend="eager")
        compiled()
        weight = model.weight.detach().clone()
        compiled()
        assert not torch.equal(weight, model.weight)
    torch._dynamo.reset()
    assert {kind for kind, _ in marked} <= {"optimizer"}


class _Nested(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.inner = _Nested(depth - 1) if depth else None

    def forward(self, x: Any) -> Any:
        x = self.layer(x)
        return x if self.inner is None else self.inner(x)


@needs_monitoring
@pytest.mark.parametrize("depth", [0, 2])
def test_each_call_of_the_outermost_module_is_a_mark(depth: int) -> None:
    model = _Nested(depth)
    with _installed() as (marked, hooks):
        for _ in range(3):
            model(torch.ones(2, 4))
        assert marked == [("forward", id(model))] * 3
        hooks.follow(StepSource("forward", id(model)))
        for _ in range(10):
            model(torch.ones(2, 4))
        assert marked == [("forward", id(model))] * 13
        hooks.follow(None)
        torch.nn.Identity()(torch.ones(1))
        assert len(marked) == 14
    model(torch.ones(2, 4))
    assert len(marked) == 14


@needs_monitoring
def test_a_call_that_raises_does_not_count_as_the_one_around_the_next() -> None:
    model = _Nested(1)
    with _installed() as (marked, _):
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 3))
        model(torch.ones(2, 4))
    assert marked == [("forward", id(model))] * 2


@needs_monitoring
def test_no_tool_is_kept() -> None:
    if sys.version_info >= (3, 12):
        before = [sys.monitoring.get_tool(tool) for tool in range(6)]
        with _installed():
            assert [sys.monitoring.get_tool(tool) for tool in range(6)] != before
        assert [sys.monitoring.get_tool(tool) for tool in range(6)] == before


@needs_monitoring
def test_a_model_that_generates_is_recorded_by_its_calls(run: Callable[..., Driven]) -> None:
    driven = run(warmup=2, steps=3)
    model = _Nested(2)
    with torch.inference_mode():
        for _ in range(40):
            model(torch.ones(2, 4))
    (recorded,) = driven.events("recorded")
    assert (recorded["by"], recorded["steps"]) == ("forward", 3)


def test_when_cuda_comes_and_marks_do_not_a_time_is_recorded(run: Callable[..., Driven]) -> None:
    driven = run(after_s=0.0, for_s=0.0)
    initialised = torch.cuda._queued_calls[-1][0]
    initialised()
    for thread in threading.enumerate():
        if thread.name == "unstall":
            thread.join()
    assert driven.log == ["own start", "own stop"]
    assert [(event["by"], event["steps"]) for event in driven.events("recorded")] == [("time", 0)]
    assert driven.session.phase is Phase.OVER


def test_a_recording_warms_up_again_after_the_program_captures_a_graph(
    run: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", lambda graph: None)
    driven = run(warmup=3, steps=5)
    driven.steps(3 + 4, took_ms=100)
    torch.cuda.CUDAGraph.capture_begin(None)
    driven.steps(1 + 2, took_ms=100)
    phases = [event["phase"] for event in driven.events("phase")]
    driven.steps(1, took_ms=100)
    assert phases == ["warmup", "plain_before"]
    assert [event["phase"] for event in driven.events("phase")] == [*phases, "plain_before"]


@pytest.mark.gpu
def test_on_a_gpu_plain_steps_are_timed_by_the_device(run: Callable[..., Driven]) -> None:
    driven = run(warmup=3, steps=5)
    driven.session._now = time.perf_counter_ns
    model = torch.nn.Linear(4096, 4096, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(5000):
        optimizer.zero_grad()
        model(torch.ones(8192, 4096, device="cuda")).sum().backward()
        optimizer.step()
    assert driven.session.phase is Phase.OVER
    before, after = driven.events("plain")
    assert before["device_ns"] == pytest.approx(after["device_ns"], rel=0.2)
    assert after["device_ns"] > 1e6  # 0.8 TFLOP a step
    machine = driven.events("machine")[-1]
    (device,) = machine["facts"]["devices"]
    assert device["index"] == 0
    assert "NVIDIA" in device["name"]
    assert {"uuid", "pci_bus_id", "total_memory", "multi_processor_count"} <= device.keys()
    before, after = driven.events("memory")
    assert after["counters"]["reserved_bytes.all.peak"] >= 4 * 4096 * 4096
    assert before["counters"].keys() == after["counters"].keys()


@pytest.mark.gpu
def test_on_a_gpu_a_graph_that_is_captured_is_let_be(run: Callable[..., Driven]) -> None:
    driven = run(warmup=1, steps=1)
    x = torch.ones(4, device="cuda")
    driven.steps(3, took_ms=100)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        driven.steps(50, took_ms=100)
    assert driven.log == []
    graph.replay()
    driven.steps(50, took_ms=100)
    assert y.tolist() == [2.0] * 4
    assert driven.log == ["own start", "own stop"]
