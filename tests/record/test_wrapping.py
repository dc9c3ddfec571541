"""Wrappers that take a function's place, and go again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from unstall.record.wrapping import unwrapped, wrap


class _Owner:
    """Whose method is wrapped."""

    def method(self, number: int, *, fails: bool = False) -> int:
        if fails:
            raise KeyError(number)
        return number + 1


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    monkeypatch.setattr(_Owner, "method", _Owner.method)  # as it was, whatever a test leaves
    return []


def _counted(calls: list[tuple[Any, ...]]) -> Callable[..., Any]:
    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        calls.append((*args[1:], kwargs))
        return original(*args, **kwargs)

    return call


def test_calls_go_through_with_their_arguments_results_and_exceptions(calls: list[tuple[Any, ...]]) -> None:
    original = _Owner.method
    undo = wrap(_Owner, "method", _counted(calls))
    assert _Owner().method(3) == 4
    with pytest.raises(KeyError, match="5"):
        _Owner().method(5, fails=True)
    undo()
    assert _Owner.method is original
    assert _Owner().method(7) == 8
    assert calls == [(3, {}), (5, {"fails": True})]


def test_a_wrapper_that_somebody_else_has_wrapped_stays_and_only_calls_through(calls: list[tuple[Any, ...]]) -> None:
    undo = wrap(_Owner, "method", _counted(calls))
    ours = _Owner.method

    @functools.wraps(ours)
    def theirs(self: _Owner, number: int) -> int:
        return 10 * ours(self, number)

    _Owner.method = theirs  # type: ignore[method-assign, assignment]
    undo()
    assert getattr(_Owner, "method") is theirs  # noqa: B009 - not what its type says
    assert _Owner().method(3) == 40
    assert calls == []


def test_two_wrappers_are_undone_one_after_the_other(calls: list[tuple[Any, ...]]) -> None:
    original = _Owner.method
    first, second = (wrap(_Owner, "method", _counted(calls)) for _ in range(2))
    assert _Owner().method(1) == 2
    second()
    assert _Owner().method(2) == 3
    first()
    assert calls == [(1, {}), (1, {}), (2, {})]
    assert _Owner.method is original


def test_within_its_wrappers_a_function_is_itself(calls: list[tuple[Any, ...]]) -> None:
    original = _Owner.method
    for _ in range(2):
        wrap(_Owner, "method", _counted(calls))
    assert unwrapped(_Owner.method) is original
    assert unwrapped(len) is None
    assert unwrapped(None) is None


def test_a_wrapper_that_says_it_wraps_itself_has_no_end_but_is_a_function() -> None:
    def itself() -> None: ...

    itself.__wrapped__ = itself  # type: ignore[attr-defined]
    assert unwrapped(itself) is itself
