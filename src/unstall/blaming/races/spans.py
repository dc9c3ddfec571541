"""Which bytes a tensor has."""

from __future__ import annotations

from typing import Any, NamedTuple


class Span(NamedTuple):
    """The bytes of a tensor: from `start` up to `end`. If it is not `dense`, only some of these bytes are its own."""

    start: int
    end: int
    dense: bool

    def touches(self, other: Span) -> bool:
        """Returns whether the two share bytes, as far as can be told. Interleaved columns do not."""
        if self.start >= other.end or other.start >= self.end:
            return False
        if self.start == other.start or (self.dense and other.dense):
            return True
        if self.dense:
            return self.start <= other.start or other.end <= self.end
        return other.dense and (other.start <= self.start or self.end <= other.end)

    def covers(self, other: Span) -> bool:
        """Returns whether all bytes of the other are this one's, too."""
        return self.start <= other.start and other.end <= self.end and (self.dense or self == other)


def span_of(tensor: Any) -> Span | None:
    """Returns the bytes of a tensor, or None if it has none."""
    count = tensor.numel()
    start = tensor.data_ptr() if count else 0
    if not start:
        return None
    size = tensor.element_size()
    if tensor.is_contiguous():
        return Span(start, start + count * size, True)
    reach = 1 + sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return Span(start, start + reach * size, reach == count)
