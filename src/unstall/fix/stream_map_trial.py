"""Which way of a `stream_map` is the fastest, found on the items themselves."""

from __future__ import annotations

from typing import Any

from unstall.fix.accelerator import milliseconds

_BETTER = 0.03  # by which another must be faster than "engines", where results cannot depend on the order


class Trial:
    """Turns of some items each: one turn of every strategy, which pays for memory on its streams, and then a turn that
    counts, from the end of the last item before it to the end of its own last.

    The turns mirror each other, so that "engines" follows itself, and no strategy's counted turn fills empty streams
    but that of "plain", which has none to fill.
    """

    def __init__(self, strategies: list[str], begun: int, turn: int) -> None:
        self.strategies = strategies  # "engines" is the last
        self._begun, self._turn = begun, turn
        self._order = strategies + strategies[::-1]
        self._ends: dict[int, Any] = {}  # by turns that are over; -1 is what was before them

    def strategy_of(self, number: int) -> str:
        """Of the item of that number; after all turns, "engines" until the figures are there."""
        turn = (number - self._begun) // self._turn
        return self._order[turn] if turn < len(self._order) else self._order[len(self._order) // 2]

    def ended(self, number: int, end: Any) -> bool:
        """Notes the end of that item, which is done; whether it was the last that counts."""
        turn, rest = divmod(number - self._begun + 1, self._turn)
        if rest == 0:
            self._ends[turn - 1] = end
        return turn >= len(self._order)

    def item_ns(self) -> dict[str, int]:
        """What an item took in the turn that counts."""
        first = len(self.strategies)
        found = {}
        for turn in range(first, 2 * first):
            took = milliseconds(self._ends[turn - 1], self._ends[turn])
            found[self._order[turn]] = int(took / self._turn * 1e6)
        return found


def best_of(item_ns: dict[str, int]) -> str:
    best = "engines"
    for other, took in item_ns.items():
        if took < (1 - _BETTER) * item_ns[best]:
            best = other
    return best
