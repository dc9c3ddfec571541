"""The bytes of memory that a tensor covers."""

from __future__ import annotations

from typing import Any, NamedTuple


class Span(NamedTuple):
    """The bytes of memory that a tensor covers: one or more contiguous ranges of bytes (runs). All
    runs have the same size.

    Attributes:
        start: Address of the first byte.
        end: Address after the last byte.
        run: Size of a run, in bytes.
        steps: For each dimension, `(number of runs, bytes from the start of one run to the start of
            the next)`, outermost first. Empty if there is only one run.
    """

    start: int
    end: int
    run: int
    steps: tuple[tuple[int, int], ...] = ()

    def touches(self, other: Span) -> bool:
        """Returns whether this span and `other` share bytes.

        Also returns False if this cannot be told, for example if both spans have gaps and their
        strides differ.
        """
        if self.start >= other.end or other.start >= self.end:
            return False
        if self.start == other.start:
            return True
        if not self.steps:
            return _has_bytes(other, self.start - other.start, self.end - other.start)
        if not other.steps:
            return _has_bytes(self, other.start - self.start, other.end - self.start)
        if len(self.steps) == len(other.steps) == 1 and self.steps[0][1] == other.steps[0][1]:  # columns of a matrix
            apart = (other.start - self.start) % self.steps[0][1]
            return apart < self.run or apart + other.run > self.steps[0][1]
        return False

    def without(self, other: Span) -> list[Span]:
        """Returns the parts of this span that are outside of `other`: up to two spans.

        If this span consists of several runs (ranges of bytes), it is not divided. In that case,
        the result is the whole span, or [] if `other` covers the whole span.
        """
        if self == other:
            return []
        if other.steps or self.start >= other.end or other.start >= self.end:
            return [self]
        if self.steps:
            return [] if other.start <= self.start and self.end <= other.end else [self]
        parts = ((self.start, min(self.end, other.start)), (max(self.start, other.end), self.end))
        return [Span(start, end, end - start) for start, end in parts if start < end]


def span_of(tensor: Any) -> Span | None:
    """Returns the bytes that a tensor covers; None if the tensor has no memory."""
    count = tensor.numel()
    start = tensor.data_ptr() if count else 0
    if not start:
        return None
    run = tensor.element_size()
    if tensor.is_contiguous():
        return Span(start, start + count * run, count * run)
    steps: list[tuple[int, int]] = []
    size = run
    for step, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        step_bytes = step * size
        if length == 1 or not step:
            continue
        if not steps and step_bytes == run:
            run *= length
        else:
            steps.insert(0, (length, step_bytes))
    end = start + run + sum((length - 1) * step for length, step in steps)
    return Span(start, end, run, tuple(steps))


def _has_bytes(span: Span, low: int, high: int) -> bool:
    """Returns whether the span has bytes between the offsets `low` and `high` from its start."""
    for length, step in span.steps:
        if low <= 0:
            return high > 0
        at = min(low // step, length - 1)
        if at + 1 < length and (at + 1) * step < high:
            return True
        low, high = low - at * step, high - at * step
    return low < span.run and high > 0
