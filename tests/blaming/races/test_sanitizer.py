"""A torch whose private sanitizer is another one is refused by the name of what it lacks."""

from __future__ import annotations

import pytest

from unstall.blaming.races import sanitizer

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that was built with CUDA has this."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)


def test_this_torch_has_all() -> None:
    assert sanitizer.why_not() is None


@pytest.mark.parametrize(
    ("owner", "name", "told"),
    [
        ("torch._C", "_activate_gpu_trace", "torch._C._activate_gpu_trace"),
        ("torch.cuda._gpu_trace", "register_callback_for_event_wait", "register_callback_for_event_wait"),
        ("torch.cuda._sanitizer.EventHandler", "_handle_event_record", "EventHandler._handle_event_record"),
        ("torch.cuda._sanitizer.StreamSynchronizations", "is_ordered_after", "EventHandler().syncs.is_ordered_after"),
    ],
)
def test_what_a_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch, owner: str, name: str, told: str) -> None:
    sanitizer.why_not()  # imports the modules
    monkeypatch.delattr(f"{owner}.{name}")

    why = sanitizer.why_not()

    assert why
    assert why.startswith(f"races cannot be looked for with torch {torch.__version__}: it has no ")
    assert why.endswith(told)


def test_torchs_own_handler_is_told_of_nothing() -> None:
    """It would keep a stack of each allocation."""
    import torch.cuda._gpu_trace as trace

    sanitizer.why_not()

    own = torch.cuda._sanitizer.cuda_sanitizer.dispatch.event_handler
    assert own._handle_memory_allocation not in trace.MemoryAllocationCallbacks.callback_list


def test_listening_ends() -> None:
    import torch.cuda._gpu_trace as trace

    before = list(trace.EventWaitCallbacks.callback_list)
    told: list[tuple[object, ...]] = []
    end = sanitizer.listen(lambda name: lambda *args: told.append((name, *args)))
    trace.EventWaitCallbacks.fire_callbacks(1, 2)
    end()
    trace.EventWaitCallbacks.fire_callbacks(3, 4)

    assert told == [("_handle_event_wait", 1, 2)]
    assert trace.EventWaitCallbacks.callback_list == before
