"""Finds the fastest strategy of a `stream_map`, by trying each strategy on some of the items."""

from __future__ import annotations

import torch

from unstall.fix.tensors.accelerator import milliseconds

_BETTER = 0.03  # least relative gain over "engines", which keeps calls in order


class Trial:
    """Measures the strategies of a `stream_map` ("plain", "engines", "streams") one after the other. If "streams" is
    measured, it is the last. Each strategy handles two windows of items. A window has as many items as may be in
    flight.

    The time of a strategy is measured from the end of the first item of its first window to the end of the first item
    of its second window. When this time starts, all items in flight belong to the strategy, and memory for the
    strategy's streams is allocated.

    With "streams", several items end at nearly the same moment. So the time of "streams" is measured from the end of
    the last item of its first window to the end of the last item of its second window.
    """

    def __init__(self, strategies: list[str], begun: int, window: int) -> None:
        self.strategies = strategies
        self._begun, self._window = begun, window
        self._spans: dict[str, tuple[int, int]] = {}  # first and last item
        for turn, name in enumerate(strategies):
            first = begun + 2 * window * turn + (window - 1 if name == "streams" else 0)
            self._spans[name] = (first, first + window)
        self._ends: dict[int, torch.Event] = {}
        self._marked = {number for span in self._spans.values() for number in span}
        self.item_ns: dict[str, int] = {}

    def strategy_of(self, number: int) -> str:
        """Returns the name of the strategy that handles the item with this number."""
        turn = (number - self._begun) // (2 * self._window)
        return self.strategies[min(turn, len(self.strategies) - 1)]

    def ended(self, number: int, end: torch.Event) -> str | None:
        """Stores the event that marks the end of item `number`. Returns the name of the strategy whose measurement is
        now complete, or None."""
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
    """Returns the name of the strategy to use. `item_ns` has the time of one item with each strategy, in ns. The first
    choice is "engines". Each other strategy is then compared with the current choice, in the order of `item_ns`. It
    becomes the current choice if it is more than 3 % faster."""
    best = "engines"
    for other, took in item_ns.items():
        if took < (1 - _BETTER) * item_ns[best]:
            best = other
    return best


def why(best: str, item_ns: dict[str, int]) -> str:
    """Returns a text that says why the strategy `best` was chosen. `item_ns` has the time of one item with each
    strategy, in ns."""
    if best != "engines":
        return f"{item_ns['engines'] / item_ns[best]:.2f} times as fast as engines"
    others = [name for name in item_ns if name != "engines"]
    ahead = [name for name in others if item_ns[name] < item_ns["engines"]]
    if ahead:
        return f"{' and '.join(ahead)} {'was' if len(ahead) == 1 else 'were'} faster by less than {100 * _BETTER:.0f} %"
    return f"{' and '.join(others) or 'others'} {'was' if len(others) == 1 else 'were'} not faster"
