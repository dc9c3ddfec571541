"""Whether containers hold the very same objects as before: a question of every call, for hundreds of slots.

It is asked by code made for just these slots, which Python runs in 0.6 of the time of `map(operator.is_, …)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_AT_ONCE = 1_000  # slots a function: the time to compile one grows with its length


class Identities:
    """Of slots: a container, a key in it, and what is expected there."""

    def __init__(self, containers: list[Any], keys: list[Any], values: list[Any]) -> None:
        self._names: list[dict[str, Any]] = []
        self._same: list[Callable[[], bool]] = []
        for start in range(0, len(keys), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            self._add(containers[part], keys[part], values[part])

    def _add(self, containers: list[Any], keys: list[Any], values: list[Any]) -> None:
        names: dict[str, Any] = {}
        known: dict[int, str] = {}
        terms = []
        for place, (container, key, value) in enumerate(zip(containers, keys, values, strict=True)):
            held = known.setdefault(id(container), f"c{len(known)}")
            names[held], names[f"v{place}"] = container, value
            if type(key) is str:
                terms.append(f"{held}[{key!r}] is v{place}")
            else:
                names[f"k{place}"] = key
                terms.append(f"{held}[k{place}] is v{place}")
        exec("def same():\n    return (" + "\n        and ".join(terms) + ")", names)
        self._names.append(names)
        self._same.append(names["same"])

    def hold(self) -> bool:
        """Raises KeyError or IndexError where a key is gone."""
        return all(same() for same in self._same)

    def expect(self, place: int, value: Any) -> None:
        """Another object in a slot from now on."""
        part, place = divmod(place, _AT_ONCE)
        self._names[part][f"v{place}"] = value
