"""What the program's own torch.profiler leaves of a recording, and the other way round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recording.recorders import Driven

from unstall.guest.own_profiler import OwnProfiler

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of torch's profiler's ways


@pytest.fixture
def own() -> Iterator[OwnProfiler]:
    watching = OwnProfiler(lambda: None)
    watching.watch()
    yield watching
    watching.remove()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    """A session of five steps that has begun."""
    driven: list[Driven] = []

    def begin() -> Driven:
        driven.append(Driven(tmp_path, warmup=1, steps=5))
        driven[-1].session.begin()
        return driven[-1]

    yield begin
    driven[-1].session.end("exit")


def _profile(**options: Any) -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)


def _profiled(driven: Driven, steps: int) -> None:
    with _profile():
        driven.steps(steps, 300)


def test_a_profiler_that_fails_to_begin_is_not_on(own: OwnProfiler, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = torch.autograd.profiler
    with pytest.raises(TypeError):
        profiler._enable_profiler(None, None)
    assert not own.is_on
    with _profile():
        assert own.is_on
        with pytest.raises(TypeError):
            profiler._enable_profiler(None, None)
        assert own.is_on
    assert not own.is_on


def test_steps_before_the_recording_that_the_program_profiled_are_no_plain_ones(run: Callable[..., Driven]) -> None:
    driven = run()
    driven.steps(2, 100)
    _profiled(driven, 2)
    driven.steps(9, 100)
    assert driven.events("recorded")[0]["steps"] == 5
    assert not driven.events("plain")


def test_steps_after_the_recording_that_the_program_profiled_are_no_plain_ones(run: Callable[..., Driven]) -> None:
    driven = run()
    driven.steps(15, 100)
    _profiled(driven, 20)
    assert [(plain["which"], plain["host_ns"]) for plain in driven.events("plain")] == [("before", 100e6)]
    assert driven.events("over")[0]["why"] == "done"
