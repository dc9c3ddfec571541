from collections.abc import Callable
from typing import Any

class Guards:
    def __init__(
        self,
        items: tuple[tuple[Any, Any, Any], ...],
        sizes: tuple[tuple[Any, int], ...],
        attributes: tuple[tuple[Any, str, Any], ...],
        counts: tuple[tuple[Any, str, int], ...],
        tensors: tuple[Any, ...],
        reading: Callable[[Any], Any],
        exchange: Any,
        /,
    ) -> None: ...
    def hold(self) -> bool: ...
    def expect(self, place: int, value: object, /) -> None: ...
