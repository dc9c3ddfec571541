"""Knows which cuBLAS handle each thread has. Each handle has workspaces of its own.

torch has a pool of handles (aten/src/ATen/cuda/detail/DeviceThreadHandles.h). A thread takes a
handle from the pool when it first needs one, and returns it when the thread ends. The autograd
threads, one for each device, never end.
"""

from __future__ import annotations

import threading

import numpy as np

from unstall.virtual.log import NO_PYTHON


class CublasHandles:
    """The cuBLAS handle of each thread. Handles are numbered from 0.

    The shim's log does not say when a thread ends. So when a new Python thread needs a handle, this
    class compares two numbers: the Python threads that have a handle, and the Python threads that
    live now, with the new one. If the first is not smaller, some thread with a handle has ended.
    The new thread then gets the handle that has not been needed for the longest time.
    """

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        self._native: set[int] = set()
        self._known = np.zeros(0, np.bool_)
        self._python: list[int] = []  # threads with a handle, in the order in which they last needed it
        self._count = 0

    def know(self, threads: np.ndarray, stacks: np.ndarray) -> None:
        """Notes the threads of new records of the log. A thread whose first record has no Python
        stack is taken for a thread of autograd or of another library.

        Args:
            threads: The thread of each record.
            stacks: The number of each record's stack, or NO_PYTHON.
        """
        most = int(threads.max()) + 1
        if most > len(self._known):
            self._known = np.append(self._known, np.zeros(most - len(self._known), np.bool_))
        if self._known.all():
            return
        for thread, row in zip(*np.unique(threads, return_index=True), strict=True):
            if not self._known[thread]:
                self._known[thread] = True
                if thread and stacks[row] == NO_PYTHON:
                    self._native.add(int(thread))

    def of(self, thread: int) -> int:
        """Returns the number of the handle of `thread`. If the thread has none, gives it one."""
        if thread in self._native:
            return self._of[thread] if thread in self._of else self._new(thread)
        if thread in self._of:
            self._python.remove(thread)
        elif len(self._python) >= threading.active_count():
            self._of[thread] = self._of.pop(self._python.pop(0))
        else:
            self._new(thread)
        self._python.append(thread)
        return self._of[thread]

    def would_be(self, thread: int) -> int:
        """Returns the number that `of(thread)` would return, and changes nothing."""
        if thread in self._of:
            return self._of[thread]
        is_reused = thread not in self._native and len(self._python) >= threading.active_count()
        return self._of[self._python[0]] if is_reused else self._count

    def _new(self, thread: int) -> int:
        number = self._of[thread] = self._count
        self._count += 1
        return number
