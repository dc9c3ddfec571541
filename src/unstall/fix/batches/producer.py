"""Computes results on a separate thread, before a consumer asks for the results."""

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

from unstall.virtual.machine import current

PATIENCE_S = 5.0  # how long closing waits for a running fetch; after that the thread ends by itself


class ProducerEnded:
    """The last result of a producer's thread. `error` is the exception that ended the thread. If the loader had no more
    batches, `error` is StopIteration."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Producer:
    """Calls `make` on a separate thread until `make` raises an exception. At most `depth` results wait for `take`.

    The thread inherits the context variables, the device and the modes of autograd and autocast from the thread that
    starts it. The thread holds no reference to the producer. The thread stops if the producer is closed or freed, or
    if the interpreter exits. A forked process does not have the thread. In a forked process, `take` raises
    RuntimeError, and `stop` and `close` do nothing.

    On a virtual GPU with a modelled host, a program must take the same time in each run, even if this machine runs the
    program's threads at different speeds. So on such a GPU, the program's thread and the producer's thread take turns:
    `take` lets the producer's thread run until `depth` results are ready.
    """

    def __init__(self, make: Callable[[], object], depth: int, enter: Callable[[], None]) -> None:
        self._shared = _Shared(depth, takes_turns=_clock_is_modelled())
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
            if shared.takes_turns:
                self._give_turn()
            while not shared.made:
                if not self._thread.is_alive() and not shared.made:
                    return None
                shared.changed.wait(0.1 if shared.stopped else 1.0)
            made = shared.made.popleft()
            shared.changed.notify_all()
            return made

    def _give_turn(self) -> None:
        """Lets the producer's thread run until `depth` results are ready or the thread has ended.

        If a result is ready, but the thread makes no further result for some time, the thread may be waiting for the
        program. From then on, the two threads no longer take turns, but run at the same time.
        """
        shared = self._shared
        shared.its_turn = True
        shared.changed.notify_all()
        count, since = len(shared.made), time.monotonic()
        while shared.its_turn and not shared.stopped and self._thread.is_alive():
            if shared.made and isinstance(shared.made[-1], ProducerEnded):
                self._thread.join()  # it computes nothing more, and needs no lock
                continue
            shared.changed.wait(1.0)
            if len(shared.made) > count:
                count, since = len(shared.made), time.monotonic()
            elif shared.made and time.monotonic() - since > PATIENCE_S:
                shared.takes_turns = False
                shared.changed.notify_all()
                return

    def stop(self) -> None:
        """Tells the thread to compute no more results. Results that are ready can still be taken."""
        self._tell_to_stop()
        if self._is_forked():
            return
        if self._shared.takes_turns and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE_S)  # what it frees comes before the program's next call

    def _tell_to_stop(self) -> None:
        if self._is_forked():
            return
        with self._shared.changed:
            self._shared.stopped = True
            self._shared.changed.notify_all()

    def close(self, patience_s: float | None = PATIENCE_S) -> bool:
        """Stops the thread and waits for its end, for at most `patience_s` seconds (None: no limit). Returns whether
        the thread has ended."""
        if self._is_forked():
            return True
        self._tell_to_stop()
        if self._thread is threading.current_thread():  # collected there
            return False
        self._thread.join(patience_s)
        _live.discard(self)
        return not self._thread.is_alive()

    def ready(self) -> int:
        """Returns how many results have been computed and not been taken yet."""
        return len(self._shared.made)

    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def __del__(self) -> None:
        if "_process" in self.__dict__:
            self._tell_to_stop()


class _Shared:
    def __init__(self, depth: int, *, takes_turns: bool) -> None:
        self.depth = depth
        self.takes_turns = takes_turns
        self.its_turn = False  # whether the producer's thread may run, if the threads take turns
        self.made: deque[object] = deque()
        self.changed = threading.Condition()
        self.stopped = False

    def waits(self) -> bool:
        """Returns whether the producer's thread must wait before it computes another result."""
        return len(self.made) >= self.depth or (self.takes_turns and not self.its_turn)


def _produce(shared: _Shared, make: Callable[[], object]) -> None:
    while True:
        with shared.changed:
            if len(shared.made) >= shared.depth:
                shared.its_turn = False
                shared.changed.notify_all()
            while shared.waits() and not shared.stopped:
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


def _clock_is_modelled() -> bool:
    machine = current()
    return machine is not None and machine.options.host == "modelled"


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
        producer._tell_to_stop()
    until = time.monotonic() + PATIENCE_S
    for producer in list(_live):
        producer.close(max(0.0, until - time.monotonic()))
