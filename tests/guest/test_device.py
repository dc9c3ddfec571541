"""What is done once CUDA is initialised."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeAlias

import pytest
import torch

from unstall.guest.device import when_initialised

Calls: TypeAlias = list[tuple[Callable[[], None], str]]


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls that torch makes when it initialises CUDA."""
    calls: Calls = []

    def queue(call: Callable[[], None]) -> None:
        calls.append((call, "where it was queued"))

    lock = threading.Lock()
    cuda = SimpleNamespace(_queued_calls=calls, _lazy_call=queue, _initialization_lock=lock)
    monkeypatch.setattr(torch, "cuda", cuda)
    return calls


def initialise(queued: Calls) -> None:
    """What torch does: it holds its lock while it goes through the list."""
    with torch.cuda._initialization_lock:
        for call, _ in queued:
            call()


def test_what_the_program_queued_runs_even_if_ours_cancels_itself(queued: Calls) -> None:
    """As a recording does that cannot begin, while torch goes through its list."""
    ran: list[str] = []

    def ours() -> None:
        ran.append("ours")
        cancel()

    cancel = when_initialised(ours)
    queued.append((lambda: ran.append("the program's seed"), ""))
    initialise(queued)
    assert ran == ["ours", "the program's seed"]


def test_what_is_queued_after_ours_was_cancelled_runs(queued: Calls) -> None:
    ran: list[str] = []
    when_initialised(lambda: ran.append("ours"))()
    torch.cuda._lazy_call(lambda: ran.append("the program's seed"))
    initialise(queued)
    assert ran == ["the program's seed"]
    assert len(queued) == 1


def test_what_was_cancelled_does_not_run(queued: Calls) -> None:
    ran: list[str] = []
    when_initialised(lambda: ran.append("ours"))()
    initialise(queued)
    assert not ran
