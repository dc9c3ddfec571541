"""Which way of a `stream_map` is the fastest, found on the items themselves."""

from __future__ import annotations

from typing import Any

from unstall.fix.accelerator import milliseconds

_BETTER = 0.03  # by which another must be faster than "engines", where results cannot depend on the order


class Trial:
    """A turn of two windows of items for every strategy.

    What counts is from the end of a turn's first item to the end of the first of its second window: until then the
    items of the turn before have ended, memory on the strategy's streams has been allocated, and those of the next turn
    are not begun.
    """

    def __init__(self, strategies: list[str], begun: int, window: int) -> None:
        self.strategies = strategies
        self._begun, self._window = begun, window
        self._marks: dict[int, Any] = {}  # the ends between which is measured, by window

    def strategy_of(self, number: int) -> str:
        """Of the item of that number."""
        turn = (number - self._begun) // (2 * self._window)
        return self.strategies[min(turn, len(self.strategies) - 1)]

    def ended(self, number: int, end: Any) -> bool:
        """Notes the end of that item, which is done; whether it was the last that counts."""
        window, rest = divmod(number - self._begun, self._window)
        if rest == 0 and window >= 0:
            self._marks[window] = end
        return window + 1 >= 2 * len(self.strategies)

    def item_ns(self) -> dict[str, int]:
        """What an item took, by strategy."""
        found = {}
        for turn, name in enumerate(self.strategies):
            took = milliseconds(self._marks[2 * turn], self._marks[2 * turn + 1])
            found[name] = max(1, int(took / self._window * 1e6))
        return found


def best_of(item_ns: dict[str, int]) -> str:
    best = "engines"
    for other, took in item_ns.items():
        if took < (1 - _BETTER) * item_ns[best]:
            best = other
    return best
