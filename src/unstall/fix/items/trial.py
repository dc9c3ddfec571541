"""Which way of a `stream_map` is the fastest, found on the items themselves."""

from __future__ import annotations

from typing import Any

from unstall.fix.tensors.accelerator import milliseconds

_BETTER = 0.03  # by which another must be faster than "engines", where results cannot depend on the order


class Trial:
    """A turn of two windows of items for every strategy, "streams" last.

    What counts is a window of items, from an end to an end with the strategy's own items in flight all the while, and
    memory on its streams allocated: from the first item of the first window to the first of the second. Items of
    "streams" end in bunches, for which it is from the last item to the last: its items go on until that is known.
    """

    def __init__(self, strategies: list[str], begun: int, window: int) -> None:
        self.strategies = strategies
        self._begun, self._window = begun, window
        self._spans: dict[str, tuple[int, int]] = {}  # numbers of items
        for turn, name in enumerate(strategies):
            first = begun + 2 * window * turn + (window - 1 if name == "streams" else 0)
            self._spans[name] = (first, first + window)
        self._ends: dict[int, Any] = {}
        self._marked = {number for span in self._spans.values() for number in span}
        self.item_ns: dict[str, int] = {}

    def strategy_of(self, number: int) -> str:
        """Of the item of that number."""
        turn = (number - self._begun) // (2 * self._window)
        return self.strategies[min(turn, len(self.strategies) - 1)]

    def ended(self, number: int, end: Any) -> str | None:
        """Notes the end of that item, which is done. The strategy of which it is now known how long items take."""
        if number not in self._marked:
            return None
        self._ends[number] = end
        for name, (first, last) in self._spans.items():
            if last == number and first in self._ends:
                took = milliseconds(self._ends[first], self._ends[last])
                self.item_ns[name] = max(1, int(took / self._window * 1e6))
                return name
        return None

    @property
    def over(self) -> bool:
        return len(self.item_ns) == len(self.strategies)


def best_of(item_ns: dict[str, int]) -> str:
    best = "engines"
    for other, took in item_ns.items():
        if took < (1 - _BETTER) * item_ns[best]:
            best = other
    return best


def why(best: str, item_ns: dict[str, int]) -> str:
    """Why that one was taken of those that were measured."""
    if best != "engines":
        return f"{item_ns['engines'] / item_ns[best]:.2f} times as fast as engines"
    others = [name for name in item_ns if name != "engines"]
    ahead = [name for name in others if item_ns[name] < item_ns["engines"]]
    if ahead:
        return f"{' and '.join(ahead)} {'was' if len(ahead) == 1 else 'were'} faster by less than {100 * _BETTER:.0f} %"
    return f"{' and '.join(others) or 'others'} {'was' if len(others) == 1 else 'were'} not faster"
