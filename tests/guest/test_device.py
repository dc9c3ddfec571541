"""What is done once CUDA is initialised."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from unstall.guest.device import when_initialised


@pytest.mark.parametrize("cancels", [True, False])
def test_what_the_program_queued_runs_even_if_ours_is_cancelled_meanwhile(
    cancels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch goes through the calls that it queued while one of them cancels ours."""
    queued: list[tuple[Callable[[], None], str]] = []
    ran: list[str] = []
    monkeypatch.setattr(
        torch, "cuda", SimpleNamespace(_queued_calls=queued, _lazy_call=lambda call: queued.append((call, "")))
    )
    queued.append((lambda: cancel() if cancels else None, ""))
    cancel = when_initialised(lambda: ran.append("ours"))
    queued.append((lambda: ran.append("the program's seed"), ""))
    for call, _ in queued:
        call()
    assert ran == (["the program's seed"] if cancels else ["ours", "the program's seed"])
