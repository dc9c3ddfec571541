"""A thread that computes results ahead of their consumer."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

import torch

PATIENCE_S = 5.0  # how long closing waits for a running fetch; after that the thread ends by itself


class ProducerEnded:
    """The last result of a producer's thread. `error` is the exception that ended the thread; StopIteration if the
    loader ended."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Producer:
    """Calls `make` on a separate thread until `make` raises an exception. At most `depth` results wait to be taken.

    The thread inherits context variables, autograd mode and autocast modes from the thread that creates the producer.
    It calls `enter` first. It holds no reference to the producer. It stops if the producer is closed or collected, or
    when the interpreter exits.

    A forked process does not have the thread, and the lock may be held forever there. So in a forked process, `take`
    raises RuntimeError, and `stop` and `close` do nothing.
    """

    def __init__(self, make: Callable[[], object], depth: int, enter: Callable[[], None]) -> None:
        self._shared = _Shared(depth)
        self._process = os.getpid()
        grad, inference, casts = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), _autocasts()
        context = contextvars.copy_context()
        shared = self._shared

        def run() -> None:
            enter()
            with contextlib.ExitStack() as modes:
                modes.enter_context(torch.inference_mode(inference))
                modes.enter_context(torch.set_grad_enabled(grad))
                for cast in casts:
                    modes.enter_context(cast)
                context.run(_produce, shared, make)

        self._thread = threading.Thread(target=run, name="unstall.prefetch", daemon=True)
        self._thread.start()
        _live.add(self)

    def take(self) -> object:
        """Waits for the next result and returns it. Returns a ProducerEnded if `make` raised an exception. After
        `stop`, returns the remaining results and then None. Raises RuntimeError in a forked process."""
        if self._is_forked():
            raise RuntimeError(
                "batches are fetched in the process that began to iterate, and this one was forked off it"
            )
        shared = self._shared
        with shared.changed:
            while not shared.made:
                if not self._thread.is_alive() and not shared.made:
                    return None
                shared.changed.wait(0.1 if shared.stopped else 1.0)
            made = shared.made.popleft()
            shared.changed.notify_all()
            return made

    def stop(self) -> None:
        """Makes the thread compute no more results."""
        if self._is_forked():
            return
        with self._shared.changed:
            self._shared.stopped = True
            self._shared.changed.notify_all()

    def close(self, patience_s: float | None = PATIENCE_S) -> bool:
        """Stops the thread and waits until it has ended, at most `patience_s` seconds (None: no limit). Returns
        whether it has ended."""
        if self._is_forked():
            return True
        self.stop()
        if self._thread is threading.current_thread():  # collected there
            return False
        self._thread.join(patience_s)
        _live.discard(self)
        return not self._thread.is_alive()

    def ready(self) -> int:
        """Returns how many results wait to be taken."""
        return len(self._shared.made)

    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def __del__(self) -> None:
        if "_process" in self.__dict__:
            self.stop()


class _Shared:
    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.made: deque[object] = deque()
        self.changed = threading.Condition()
        self.stopped = False


def _produce(shared: _Shared, make: Callable[[], object]) -> None:
    while True:
        with shared.changed:
            while len(shared.made) >= shared.depth and not shared.stopped:
                shared.changed.wait()
            if shared.stopped:
                return
        try:
            made = make()
        except BaseException as error:  # any error is raised in the thread that takes the result
            made = ProducerEnded(error)
        with shared.changed:
            shared.made.append(made)
            shared.changed.notify_all()
        ended = isinstance(made, ProducerEnded)
        made = None  # the error's traceback has this frame; a cycle would free events on any thread
        if ended:
            return


def _autocasts() -> list[torch.autocast]:
    """Returns context managers that enter the calling thread's autocast modes on another thread."""
    cached = torch.is_autocast_cache_enabled()
    return [
        torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=cached)
        for kind in ("cpu", "cuda", "xpu", "mps")
        if torch.is_autocast_enabled(kind)
    ]


_live: weakref.WeakSet[Producer] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stops all producers' threads before the interpreter exits, because a thread that is killed inside torch's C++
    aborts the process."""
    for producer in list(_live):
        producer.stop()
    until = time.monotonic() + PATIENCE_S
    for producer in list(_live):
        producer.close(max(0.0, until - time.monotonic()))
