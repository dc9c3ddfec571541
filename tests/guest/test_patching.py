"""Wrappers that take a function's place, and go again."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from unstall.guest.patching import unwrapped, wrap, wrap_after


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


@pytest.fixture(params=["in C", "in Python"])
def built(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the wrapper is C."""
    in_c = bool(request.param == "in C")
    if not in_c:
        monkeypatch.setattr(sys.modules[wrap_after.__module__], "_after", None)
    elif find_spec("unstall.guest._after") is None:
        pytest.skip("the extension is not built here")
    return in_c


def test_what_returns_is_told_of_with_its_arguments(calls: list[tuple[Any, ...]], built: bool) -> None:
    original = _Owner.method
    undo = wrap_after(_Owner, "method", lambda *args, **kwargs: calls.append((*args[1:], kwargs)))
    assert (_Owner.method.__name__, _Owner.method.__qualname__) == ("method", "_Owner.method")
    assert unwrapped(_Owner.method) is original
    assert _Owner().method(3) == _Owner.method(_Owner(), 3) == 4
    with pytest.raises(KeyError, match="5"):
        _Owner().method(5, fails=True)
    undo()
    assert _Owner.method is original
    assert _Owner().method(7) == 8
    assert calls == [(3, {}), (3, {})]


def test_what_is_raised_can_be_told_of_too(calls: list[tuple[Any, ...]], built: bool) -> None:
    undo = wrap_after(_Owner, "method", lambda *args, **kwargs: calls.append((*args[1:], kwargs)), always=True)
    assert _Owner().method(3) == 4
    with pytest.raises(KeyError, match="5") as caught:
        _Owner().method(5, fails=True)
    undo()
    assert len(caught.traceback) == (2 if built else 4)
    assert calls == [(3, {}), (5, {"fails": True})]


def test_what_is_raised_has_no_frame_of_ours(built: bool, calls: list[tuple[Any, ...]]) -> None:
    undo = wrap_after(_Owner, "method", lambda *_, **__: None)
    with pytest.raises(KeyError) as caught:
        _Owner().method(5, fails=True)
    undo()
    assert len(caught.traceback) == (2 if built else 4)


def test_a_wrapper_that_was_kept_tells_of_nothing_any_more(calls: list[tuple[Any, ...]], built: bool) -> None:
    undo = wrap_after(_Owner, "method", lambda *_, **__: calls.append(()))
    kept, bound = _Owner.method, _Owner().method
    undo()
    assert (kept(_Owner(), 1), bound(2)) == (2, 3)
    assert not calls


def test_a_wrapper_is_referred_to_copied_and_pickled_as_a_function_is(
    calls: list[tuple[Any, ...]], built: bool
) -> None:
    undo = wrap_after(_Owner, "method", lambda *_, **__: None)
    wrapper, owner = _Owner.method, _Owner()
    assert weakref.ref(wrapper)() is wrapper
    assert weakref.WeakMethod(owner.method)() == owner.method
    assert copy.deepcopy(wrapper) is wrapper
    assert pickle.loads(pickle.dumps(wrapper)) is wrapper
    undo()


def test_a_wrapper_that_is_in_a_circle_is_freed() -> None:
    class Circle:
        def method(self) -> None: ...

    circle = weakref.ref(Circle)
    wrap_after(Circle, "method", lambda *_, of=Circle: None)
    del Circle
    gc.collect()
    assert circle() is None


@pytest.mark.parametrize(("always", "fails"), [(False, False), (True, False), (True, True)])
def test_what_is_raised_while_it_is_told_goes_on(
    built: bool, calls: list[tuple[Any, ...]], always: bool, fails: bool
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    undo = wrap_after(_Owner, "method", interrupted, always=always)
    with pytest.raises(KeyboardInterrupt):
        _Owner().method(1, fails=fails)
    undo()
