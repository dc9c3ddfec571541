"""The text of a list of events → pieces of it, small enough for the cache.

A piece is cut at a gap between two events, `}, {`. Such a gap may also stand inside an event; then neither side is
JSON, so whoever decodes the piece notices. Only then are brackets counted, which is exact but slower. And only where
brackets make no sense, because a quote is missing, is each stretch between two gaps tried on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from unstall.errors import TraceError
from unstall.read.brackets import Items
from unstall.read.window import Window

PIECE_BYTES = 1 << 20
_MOST_EVENT_BYTES = 16 << 20
_MOST_TRIES = 64  # for a gap, or for an event in text that is broken
_MOST_UNREADABLE = 10_000  # before the first that can be read

_GAP = re.compile(rb"\}\s*,\s*(?=\{)")
_BETWEEN = b" \t\r\n,"


class Sink(Protocol):
    """Where events go."""

    def take(self, piece: memoryview | bytes) -> bool:
        """Take all events of a list in JSON; if one is not in order take none: False."""

    def mend(self, event: bytes) -> bool:
        """Take one event, mended if need be; False if it cannot be."""


class Cutter:
    """Sends the events of a list to a sink. The window always begins with the "[" of what is left of the list."""

    def __init__(self, window: Window, sink: Sink, path: Path, piece_bytes: int = PIECE_BYTES) -> None:
        self.cut_off = False  # the text ended before the list did
        self.unreadable = 0  # events dropped
        self.first_unreadable = -1  # byte of the first
        self._window = window
        self._sink = sink
        self._path = path
        self._piece_bytes = piece_bytes
        self._closed = self._any_taken = False

    def run(self) -> None:
        """Raises TraceError for what is no list of events, or has one that is too long."""
        window = self._window
        while not self._closed:
            if self._by_gaps() and self._may_grow:
                window.more()
            elif self._by_brackets():
                continue
            elif self._may_grow:
                window.double()
            elif self._by_trial():
                continue
            elif window.ended:
                self.cut_off = True
                break
            else:
                raise TraceError(
                    f"{self._path}: the event at byte {window.start:,} is longer than {_MOST_EVENT_BYTES >> 20} MiB; "
                    "no recorder writes such, so this is not read"
                )
        if self.unreadable and not self._any_taken:
            raise self._no_events()

    @property
    def _may_grow(self) -> bool:
        return not self._window.ended and len(self._window) <= _MOST_EVENT_BYTES

    def _by_gaps(self) -> bool:
        """Take piece after piece while there is a gap to cut at; False at a piece that is not in order."""
        start = 1
        try:
            while gap := self._last_gap(start):
                if not self._take(start, gap[0]):
                    return False
                start = gap[1]
            return True
        finally:
            self._window.reopen_list(start)

    def _last_gap(self, start: int) -> tuple[int, int] | None:
        """(end of an event, start of the next), one or two pieces on from `start`."""
        text = self._window.text
        near = start + self._piece_bytes
        for high in (near, len(text)) if len(text) - near > self._piece_bytes else (len(text),):
            end = high
            for _ in range(_MOST_TRIES):
                end = text.rfind(b"}", start, end)
                if end < 0:
                    break
                if gap := _GAP.match(text, end):
                    return end + 1, gap.end()
        return None

    def _by_brackets(self) -> bool:
        """Take all events in the window that end there; whether there was anything to take."""
        found = Items(self._window.text, 1)
        spans = found.whole
        end = 1
        for span in spans:
            self._check_between(end, span[0])
            end = span[1]
        for group in _groups(spans, self._piece_bytes):
            if not self._take(group[0][0], group[-1][1]):
                for span in group:
                    self._mend(*span)
        if found.close >= 0:
            self._check_between(end, found.close)
            self._closed = True
            end = found.close + 1
        elif len(found.starts) > len(spans):
            self._check_between(end, found.starts[-1])
            end = found.starts[-1]
        elif found.between:
            self._check_between(end, len(self._window))
            end = len(self._window)
        if self._closed:
            self._window.skip(end)
        else:
            self._window.reopen_list(end)
        return end > 1

    def _check_between(self, start: int, end: int) -> None:
        if self._window.text[start:end].strip(_BETWEEN):
            self._drop(start)

    def _mend(self, start: int, end: int) -> None:
        """Take what brackets say is one event. If it is not, a quote may be missing that makes it of several."""
        if self._take_mended(start, end):
            return
        taken, last = self._between_gaps(start, end)
        if not taken or not self._take_mended(last, end):
            self._drop(last if taken else start)

    def _by_trial(self) -> bool:
        """Take the events that stand between gaps; whether there was any."""
        taken, last = self._between_gaps(1, len(self._window))
        if taken:
            self._window.reopen_list(last)
        return taken

    def _between_gaps(self, low: int, high: int) -> tuple[bool, int]:
        """Of a stretch of broken text: whether any event was taken, and where the last may start.

        That one is left: nothing says that it ends where the stretch does.
        """
        start, in_a_row = low, 0
        lost: list[int] = []
        any_taken = False
        while gap := _GAP.search(self._window.text, start, high):
            if in_a_row >= _MOST_TRIES:
                in_a_row = 0
                piece = self._last_gap(start)
                if piece and piece[1] <= high and self._take(start, piece[0]):
                    start, in_a_row = piece[1], _MOST_TRIES
                    continue
            if self._take_mended(start, gap.start() + 1):
                any_taken = True
                in_a_row += 1
            else:
                lost.append(start)
                in_a_row = 0
                if not any_taken and len(lost) >= _MOST_TRIES:
                    break
            start = gap.end()
        if any_taken:
            for where in lost:
                self._drop(where)
        return any_taken, start

    def _take(self, start: int, end: int) -> bool:
        """A list of these events is what their text becomes for a moment: a copy would cost a tenth of the time."""
        text = self._window.text
        if end == len(text):
            taken = self._sink.take(b"[%b]" % text[start:end])
        else:
            around = text[start - 1], text[end]
            text[start - 1], text[end] = b"[]"
            taken = self._sink.take(memoryview(text)[start - 1 : end + 1])
            text[start - 1], text[end] = around
        self._any_taken |= taken
        return taken

    def _take_mended(self, start: int, end: int) -> bool:
        taken = self._sink.mend(bytes(self._window.text[start:end]))
        self._any_taken |= taken
        return taken

    def _drop(self, where: int) -> None:
        if not self.unreadable:
            self.first_unreadable = self._window.start + where
        self.unreadable += 1
        if self.unreadable >= _MOST_UNREADABLE and not self._any_taken:
            raise self._no_events()

    def _no_events(self) -> TraceError:
        return TraceError(
            f"{self._path}: byte {self.first_unreadable:,} of its text: what is listed here are no events, "
            "so this is no trace; give the file that export_chrome_trace() wrote"
        )


def _groups(spans: list[tuple[int, int]], most_bytes: int) -> Iterator[list[tuple[int, int]]]:
    """Neighbours, together about as long as a piece."""
    group: list[tuple[int, int]] = []
    for span in spans:
        if group and span[1] - group[0][0] > most_bytes:
            yield group
            group = []
        group.append(span)
    if group:
        yield group
