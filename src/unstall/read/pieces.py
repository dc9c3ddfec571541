"""Cuts the text of a trace's list of events into pieces of about 1 MiB, so that a piece fits into
the CPU's cache.

A piece is cut at a gap between two events, `}, {`. Such text may also occur inside an event. Then
neither side of the cut is valid JSON, so decoding the piece fails. In this case, the end of each
event is found by counting brackets, which is exact but slower. If the brackets do not match,
because a quote is missing, the text between two neighbouring gaps is tried as one event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from unstall.decoding import from_json
from unstall.errors import TraceError
from unstall.read.list_items import Items
from unstall.read.text_window import TextWindow
from unstall.timeline.limits import MOST_EVENT_BYTES, MOST_UNREADABLE_EVENTS

PIECE_BYTES = 1 << 20
_MOST_TRIES = 64  # to find a gap, or an event in broken text

_GAP = re.compile(rb"\}\s*,\s*(?=\{)")
_COMMA = re.compile(rb"\s*,\s*(?=\{)")
_CLOSE = re.compile(rb"\}\s*\]")
_SOON_BYTES = (4 << 10, 16 << 10)
_BETWEEN = b" \t\r\n,"


class Sink(Protocol):
    """An object that receives the events that a `Cutter` finds."""

    def take(self, piece: memoryview | bytes) -> bool:
        """Takes all events of `piece`, a JSON list, and returns True. If an event is malformed,
        takes none of the events and returns False.
        """

    def repair(self, event: bytes) -> bool:
        """Takes `event`, the text of one event. Repairs it first if it is malformed. Returns False
        if it cannot be repaired.
        """


class Cutter:
    """Cuts a trace's list of events into pieces of about 1 MiB, and sends each piece to a `Sink`,
    which decodes it.

    The part of the text that is in memory always begins with "[", followed by the events that were
    not sent yet.

    Attributes:
        cut_off: Whether the text of the file ended before the end of the list.
        unreadable: How many events were dropped.
        first_unreadable: The byte offset in the text of the first dropped event, or -1.
    """

    def __init__(self, window: TextWindow, sink: Sink, path: Path, piece_bytes: int = PIECE_BYTES) -> None:
        self.cut_off = False  # the text ended before the list did
        self.unreadable = 0  # events dropped
        self.first_unreadable = -1  # byte of the first
        self._window = window
        self._sink = sink
        self._path = path
        self._piece_bytes = piece_bytes
        self._closed = self._any_taken = False

    def run(self) -> None:
        """Sends all events of the trace's list of events to the sink.

        Raises:
            TraceError: The text is not a list of events, or an event is too long.
        """
        window = self._window
        while not self._closed:
            if self._by_gaps() and self._may_grow:
                window.more()
            elif self._closed or self._by_brackets():
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
                    f"{self._path}: the event at byte {window.start + 1:,} is longer than "
                    f"{MOST_EVENT_BYTES >> 20} MiB; no recorder writes such, so this is not read"
                )
        if self.unreadable and not self._any_taken:
            raise self._no_events()

    @property
    def _may_grow(self) -> bool:
        return not (self._closed or self._window.ended) and len(self._window) <= MOST_EVENT_BYTES

    def _by_gaps(self) -> bool:
        """Sends the events in the window, in pieces that are cut at gaps `}, {`. If the list seems
        to end soon after the last gap, the piece is first cut there. Returns False if the sink
        finds that a piece is malformed.
        """
        start = 1
        while gap := self._last_gap(start):
            close = self._close_after(gap[1])
            if close and self._take(start, close[0]):
                self._closed = True
                self._window.skip(close[1])
                return True
            if not self._take(start, gap[0]):
                break
            start = gap[1]
        self._window.reopen_list(start)
        return gap is None

    def _close_after(self, start: int) -> tuple[int, int] | None:
        """Returns the end of the last event and the end of the list, if the event that begins at
        `start` is the last one. Returns None if it is not, is malformed, or has much text after it.
        """
        text = self._window.text
        close = _CLOSE.search(text, start) if len(text) - start <= _SOON_BYTES[-1] else None
        if close:
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                from_json(bytes(text[start : close.start() + 1]), msgspec.Raw)
                return close.start() + 1, close.end()
        return None

    def _last_gap(self, start: int) -> tuple[int, int] | None:
        """Finds a gap `}, {` between two events. It is the last gap in the first 1 MiB after
        `start`. If this text has no gap, it is the last gap in the window.

        Returns `(end, start)`: the end of the event before the gap, and the start of the event
        after it. Returns None if there is no gap.
        """
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
        """Finds events by counting brackets, and sends all events that end within the window.
        Returns whether any text was consumed.
        """
        found = Items(self._window.text, 1)
        end = 1
        for group in _groups(found.whole, self._piece_bytes):
            self._check_between(end, group[0][0])
            end = group[0][0]
            if self._take(end, group[-1][1]):
                end = group[-1][1]
                continue
            for span in group:
                self._check_between(end, span[0])
                if self._take_repaired(*span):
                    end = span[1]
                    continue
                if self._may_go_on(span[0]):
                    self._window.reopen_list(span[0])
                    return span[0] > 1
                any_taken, end = self._among_the_broken(*span)
                if any_taken:  # so a quote is missing: brackets after it cannot be matched
                    self._window.reopen_list(self._among_the_broken(end, len(self._window))[1])
                    return True
                self._drop(span[0])
                end = span[1]
        if found.close >= 0:
            self._check_between(end, found.close)
            self._closed = True
            self._window.skip(found.close + 1)
            return True
        rest = len(self._window) if found.between else end
        if len(found.starts) > len(found.ends):
            rest = found.starts[-1]
        self._check_between(end, rest)
        self._window.reopen_list(rest)
        return rest > 1

    def _check_between(self, start: int, end: int) -> None:
        if self._window.text[start:end].strip(_BETWEEN):
            self._drop(start)

    def _by_trial(self) -> bool:
        """Tries the text between each two neighbouring gaps `}, {` as one event. Returns whether
        the sink took any event.
        """
        taken, end = self._among_the_broken(1, len(self._window))
        if taken:
            self._window.reopen_list(end)
        return taken

    def _among_the_broken(self, low: int, high: int) -> tuple[bool, int]:
        """Sends the events that begin in [low, high). Quotes do not match in this part of the text.

        An event may begin after each gap `}, {`. It is first taken to end at the next gap. If that
        text is not an event, the event is taken to end where its brackets close.

        Returns `(any_taken, end)`: whether the sink took any event, and the end of the last event.
        The text after `end` may be the beginning of an unfinished event.
        """
        text = self._window.text
        start, in_a_row = low, 0
        lost: list[tuple[int, int]] = []
        any_taken = False
        while start < high:
            gap = _GAP.search(text, start, high)
            if in_a_row >= _MOST_TRIES:
                in_a_row = 0
                piece = self._last_gap(start)
                if piece and piece[1] <= high and self._take(start, piece[0]):
                    start, in_a_row = piece[1], _MOST_TRIES
                    continue
            if gap and self._take_repaired(start, gap.start() + 1):
                any_taken, in_a_row, start = True, in_a_row + 1, gap.end()
            elif (end := self._end_by_brackets(start)) and self._take_repaired(start, end):
                any_taken, in_a_row, start = True, in_a_row + 1, end
                if not (comma := _COMMA.match(text, end)):
                    break
                start = comma.end()
            elif self._may_go_on(start):
                break
            else:
                in_a_row = 0
                if not gap or (not any_taken and len(lost) >= _MOST_TRIES):
                    break
                lost.append((start, gap.end()))
                start = gap.end()
        if any_taken:
            for stretch in lost:
                if text.find(b'"ph"', *stretch) >= 0:
                    self._drop(stretch[0])
        return any_taken, start

    def _may_go_on(self, start: int) -> bool:
        """Returns whether the event that begins at `start` may end in text that was not read yet."""
        return self._may_grow and start + _SOON_BYTES[-1] > len(self._window)

    def _end_by_brackets(self, start: int) -> int:
        """Returns the end of the event that begins at `start`, found by counting brackets. Returns
        0 if the event does not end within 16 KiB.
        """
        for length in _SOON_BYTES:
            if ends := Items(self._window.text[start : start + length]).ends:
                return start + ends[0]
        return 0

    def _take(self, start: int, end: int) -> bool:
        """Passes the events in [start, end) of the window to the sink, as a JSON list. Returns
        whether the sink took them.

        Overwrites the bytes around the events with "[" and "]" for this, and restores these bytes
        afterwards. To copy the text instead would take 10 % longer.
        """
        text = self._window.text
        if end == len(text):
            taken = self._sink.take(b"[%b]" % bytes(text[start:end]))
        else:
            around = text[start - 1], text[end]
            text[start - 1], text[end] = b"[]"
            taken = self._sink.take(memoryview(text)[start - 1 : end + 1])
            text[start - 1], text[end] = around
        self._any_taken |= taken
        return taken

    def _take_repaired(self, start: int, end: int) -> bool:
        taken = self._sink.repair(bytes(self._window.text[start:end]))
        self._any_taken |= taken
        return taken

    def _drop(self, where: int) -> None:
        if not self.unreadable:
            self.first_unreadable = self._window.start + where
        self.unreadable += 1
        if self.unreadable >= MOST_UNREADABLE_EVENTS and not self._any_taken:
            raise self._no_events()

    def _no_events(self) -> TraceError:
        return TraceError(
            f"{self._path}: byte {self.first_unreadable:,} of its text: what is listed here are no events, "
            "so this is no trace; give the file that export_chrome_trace() wrote"
        )


def _groups(spans: list[tuple[int, int]], most_bytes: int) -> Iterator[list[tuple[int, int]]]:
    """Yields lists of neighbouring spans (start, end). The spans of a list cover at most
    `most_bytes` bytes together, unless the list is a single longer span.
    """
    group: list[tuple[int, int]] = []
    for span in spans:
        if group and span[1] - group[0][0] > most_bytes:
            yield group
            group = []
        group.append(span)
    if group:
        yield group
