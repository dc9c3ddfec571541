"""Looks for races in this process while the process runs."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from unstall.blaming.races import sanitizer
from unstall.blaming.races.noted import NotedRaces
from unstall.blaming.races.stacks import user_stack
from unstall.errors import UnstallError
from unstall.guest.backward_passes import ENGINE, engine_modules
from unstall.guest.patching import wrap


class RaceWatch:
    """A search for races in this process, from the construction of the object until `stop` is
    called. torch must be imported.

    Only operators of the thread that creates the object are observed, and those of autograd threads
    that work for this thread.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """Begins the search for races.

        Args:
            changed: A function that is called when a race is found.

        Raises:
            UnstallError: This version of torch is not supported.
        """
        if why := sanitizer.why_not():
            raise UnstallError(why)
        from unstall.blaming.races.follower import Captured, Follower, FollowingMode

        self.failed = ""
        self.noted = NotedRaces(changed)
        self._on = True
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] | None = None  # while a function is called
        self._undo = ExitStack()
        self._new_graph = Captured
        self._graphs: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._follower = Follower(self.noted)
        with ExitStack() as undo:
            undo.callback(sanitizer.listen(self._telling))
            for owner, name, call in self._patches(sys.modules["torch"]):
                if hasattr(owner, name):
                    undo.callback(wrap(owner, name, _function(call)))
            undo.enter_context(FollowingMode(self._follower, self._guarded))
            self._undo = undo.pop_all()
        _WATCHES.add(self)

    def stop(self) -> None:
        """Ends the search for races, and removes all patches from torch."""
        self.turn_off()
        self._undo.close()

    def _patches(self, torch: Any) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        """Yields (owner, name, replacement) for each function of torch whose calls torch does not report."""
        cuda = torch.cuda
        yield cuda.Event, "query", self._if_true(self._follower.event_has_ended)
        yield cuda.Event, "elapsed_time", self._elapsed
        yield cuda.Stream, "query", self._if_true(self._follower.stream_has_ended)
        yield torch.Tensor, "numpy", self._reading("numpy()")
        yield torch.Tensor, "tolist", self._reading("tolist()")
        yield torch.Tensor, "record_stream", self._recording
        yield cuda.CUDAGraph, "capture_begin", self._capturing
        yield cuda.CUDAGraph, "capture_end", self._captured
        yield cuda.CUDAGraph, "replay", self._replaying
        for module in engine_modules():
            yield module, ENGINE, self._during_backward

    def _telling(self, name: str) -> Callable[..., object]:
        act = getattr(self._follower, name)
        return lambda *args: self._guarded(act, *args)

    def turn_off(self) -> None:
        """Ends the search for races, but leaves the patches of torch in place."""
        self._on = False

    def _guarded(self, act: Callable[..., Any], *args: Any) -> Any:
        """Calls `act(*args)`. If `act` raises an error, hides it from the program, and ends the search for races.

        If another guarded call is running, `act` is called after that call. This happens, for example, when a tensor is
        freed during the other call.
        """
        if not self._on:
            return None
        with self._lock:
            if self._waiting is not None:
                self._waiting.append((act, args))
                return None
            self._waiting = deque()
            try:
                result = act(*args)
                while self._waiting:
                    later, its = self._waiting.popleft()
                    later(*its)
            except Exception as error:
                self._on = False
                self.failed = f"{type(error).__name__}: {error}"
                return None
            finally:
                self._waiting = None
            return result

    def _if_true(self, ended: Callable[[Any], None]) -> Callable[..., Any]:
        def call(original: Any, it: Any) -> Any:
            done = original(it)
            if done:
                self._guarded(ended, it)
            return done

        return call

    def _elapsed(self, original: Any, *events: Any, **named: Any) -> Any:
        elapsed = original(*events, **named)  # which raises an error if they have not ended
        for event in (*events, *named.values()):
            self._guarded(self._follower.event_has_ended, event)
        return elapsed

    def _reading(self, operator: str) -> Callable[..., Any]:
        def call(original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
            self._guarded(self._follower.reads_host, tensor, operator)
            return original(tensor, *args, **kwargs)

        return call

    def _recording(self, original: Any, tensor: Any, *streams: Any, **named: Any) -> Any:
        for stream in (*streams, *named.values()):
            self._guarded(self._follower.recorded, tensor, stream)
        return original(tensor, *streams, **named)

    def _capturing(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(graph, *args, **kwargs)
        self._follower.capturing = self._graphs[graph] = self._new_graph()
        return result

    def _captured(self, original: Any, graph: Any) -> Any:
        self._follower.capturing = None
        return original(graph)

    def _replaying(self, original: Any, graph: Any) -> Any:
        if graph in self._graphs:
            self._guarded(self._follower.replayed, self._graphs[graph])
        return original(graph)

    def _during_backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        before, self._follower.backward_at = self._follower.backward_at, user_stack()
        try:
            return original(*args, **kwargs)
        finally:
            self._follower.backward_at = before


def _function(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method as a function, because torch.compile can only mark functions."""
    return lambda *args, **kwargs: call(*args, **kwargs)


_WATCHES: WeakSet[RaceWatch] = WeakSet()


def _turn_all_off() -> None:
    for watch in list(_WATCHES):
        watch.turn_off()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turn_all_off)
