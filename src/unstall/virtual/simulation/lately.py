"""Tells how much other code a thread has run since it last ran the same."""

from __future__ import annotations


class Lately:
    """Tells how many different other operators and functions of Python a thread has begun since it last began the same:
    the more, the less of the code, and of the data that it works on, is in the CPU's caches.

    Args:
        most: More than so many are not told apart.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: dict[int, list[int]] = {}  # by thread: the one begun last is last

    def begin(self, thread: int, what: int) -> int:
        """Returns how many different others the thread has begun since it last began this one; if it never did, the
        most.

        Args:
            thread: The thread.
            what: The number of an operator, or one's complement of the number of a function.
        """
        begun = self._begun.setdefault(thread, [])
        others = self._most
        if what in begun:
            at = begun.index(what)
            others = len(begun) - 1 - at
            del begun[at]
        elif len(begun) == self._most:
            del begun[0]
        begun.append(what)
        return others
