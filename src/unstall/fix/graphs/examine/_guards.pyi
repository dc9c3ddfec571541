from collections.abc import Callable

import torch

from unstall.fix.graphs.examine.guards import Attribute, Count, Item, Size

class Guards:
    def __init__(
        self,
        items: tuple[Item, ...],
        sizes: tuple[Size, ...],
        attributes: tuple[Attribute, ...],
        counts: tuple[Count, ...],
        tensors: tuple[torch.Tensor, ...],
        reading: Callable[[torch.Tensor], object],
        exchange: object,
        /,
    ) -> None: ...
    def hold(self) -> bool: ...
    def expect(self, place: int, value: object, /) -> None: ...
