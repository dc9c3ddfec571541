"""A trace's text → its metadata and its events, in pieces small enough for the cache; no file is held whole.

A piece is cut at a gap between two events, `}, {`. Such a gap may also stand inside an event; then neither side is
JSON, so whoever decodes the piece notices. Only then are brackets counted, which is exact but slower.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from unstall.errors import TraceError
from unstall.read.brackets import items
from unstall.read.unpack import DamagedError

PIECE_BYTES = 512 << 10
_MOST_EVENT_BYTES = 16 << 20
_MOST_METADATA_BYTES = 16 << 20
_MOST_TRIES = 64  # for a gap, or for an event in text that is broken
_MOST_UNREADABLE = 10_000  # before the first that can be read

_GAP = re.compile(rb"\}\s*,\s*(?=\{)")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*(?P<list>\[)?')
_BETWEEN = b" \t\r\n,"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Sink(Protocol):
    """Where events go."""

    def take(self, piece: memoryview) -> bool:
        """Take all events of a piece, which commas separate; if one is not in order take none: False."""

    def mend(self, event: bytes) -> bool:
        """Take one event, mended if need be; False if it cannot be."""


class Text:
    """What a trace says around its events, and what became of the text. `read` fills all of it in."""

    def __init__(self, blocks: Iterator[bytes], path: Path, piece_bytes: int = PIECE_BYTES) -> None:
        self.head = b""  # members of the outer object before "traceEvents"
        self.tail = b"}"  # … and after it, to the end of the object
        self.tail_left_out = False  # for its length
        self.length = 0  # bytes of text there were
        self.damage = ""  # why the file could not be unpacked to its end
        self.cut_off = False  # it ended before the list of events did
        self.unreadable = 0  # events dropped
        self.first_unreadable = -1  # byte of the first
        self._blocks = blocks
        self._path = path
        self._piece_bytes = piece_bytes
        self._buffer = b""
        self._closed = self._ended = self._any_taken = False

    def read(self, sink: Sink) -> None:
        """Send all events to `sink`. Raises TraceError for what is no trace, or breaks a limit."""
        is_object = self._open()
        while not self._closed:
            in_order = self._by_gaps(sink)
            if in_order and not self._ended and len(self._buffer) <= _MOST_EVENT_BYTES:
                self._more()
            elif self._by_brackets(sink):
                continue
            elif not self._ended and len(self._buffer) <= _MOST_EVENT_BYTES:
                self._more()
            elif self._by_trial(sink):
                continue
            elif self._ended:
                self.cut_off = True
                break
            else:
                raise TraceError(
                    f"{self._path}: the event at byte {self._offset:,} is longer than {_MOST_EVENT_BYTES >> 20} MiB; "
                    "no recorder writes such, so this is not read"
                )
        if self.unreadable and not self._any_taken:
            raise self._no_events()
        if is_object and self._closed:
            self._read_tail()

    @property
    def _offset(self) -> int:
        """Byte of the text at which the buffer begins."""
        return self.length - len(self._buffer)

    def _more(self) -> bool:
        try:
            block = next(self._blocks, b"")
        except DamagedError as error:
            self.damage, block = str(error), b""
        self._ended = not block
        self.length += len(block)
        self._buffer += block
        return not self._ended

    def _open(self) -> bool:
        """Go to the first event. Whether the list of events stands in an object, as Kineto writes it."""
        while not (start := self._buffer.removeprefix(_BYTE_ORDER_MARK).lstrip()) and self._more():
            if len(self._buffer) > _MOST_METADATA_BYTES:
                break
        if not start:
            raise TraceError(f"{self._path}: {self.damage or 'there is nothing in it'}; record the run again")
        self._buffer = start
        if start.startswith(b"["):
            self._buffer = start[1:]
            return False
        if not start.startswith(b"{"):
            raise TraceError(f"{self._path}: {_what_is(start)}")
        while (found := self._events_key()) is None and len(self._buffer) <= _MOST_METADATA_BYTES and self._more():
            pass
        if found is None:
            raise TraceError(f"{self._path}: {self._why_no_events()}")
        key, end = found
        self.head = self._buffer[1:key]
        self._buffer = self._buffer[end:]
        return True

    def _events_key(self) -> tuple[int, int] | None:
        """Where "traceEvents" stands, and its list begins; only once no more text can settle it, also in a string."""
        fallback = None
        for match in _EVENTS_KEY.finditer(self._buffer):
            if match.end() == len(self._buffer) and not match["list"]:
                break
            before = items(self._buffer[1 : match.start()])
            if before.in_text or len(before.starts) > len(before.ends) or before.close >= 0:
                fallback = fallback or (match.span() if match["list"] else None)
                continue
            if not match["list"]:
                raise TraceError(
                    f'{self._path}: byte {self._offset + match.end():,}: "traceEvents" is not a list; this is no trace'
                )
            return match.span()
        return fallback if self._ended or len(self._buffer) > _MOST_METADATA_BYTES else None

    def _why_no_events(self) -> str:
        if len(self._buffer) > _MOST_METADATA_BYTES:
            return f'no "traceEvents" in its first {_MOST_METADATA_BYTES >> 20} MiB; this is no trace'
        if self.damage:
            return f"{self.damage} at byte {self.length:,} of its text, before the first event; record the run again"
        try:
            msgspec.json.decode(self._buffer, type=msgspec.Raw)
        except msgspec.DecodeError:
            return f"cut off at byte {self.length:,}, before the first event; record the run again"
        return 'there is no "traceEvents" in it; give the file that export_chrome_trace() wrote'

    def _by_gaps(self, sink: Sink) -> bool:
        """Take piece after piece while there is a gap to cut at; False at a piece that is not in order."""
        start = 0
        text = memoryview(self._buffer)
        try:
            while gap := self._last_gap(start):
                if not sink.take(text[start : gap[0]]):
                    return False
                self._any_taken = True
                start = gap[1]
            return True
        finally:
            self._buffer = self._buffer[start:]

    def _last_gap(self, start: int) -> tuple[int, int] | None:
        """(end of an event, start of the next), about one piece on from `start`."""
        for high in (start + self._piece_bytes, len(self._buffer)):
            end = high
            for _ in range(_MOST_TRIES):
                end = self._buffer.rfind(b"}", start, end)
                if end < 0:
                    break
                if gap := _GAP.match(self._buffer, end):
                    return end + 1, gap.end()
        return None

    def _by_brackets(self, sink: Sink) -> bool:
        """Take all events in the buffer that end there; whether there was anything to take."""
        found = items(self._buffer)
        spans = found.whole
        end = 0
        for span in spans:
            self._check_between(end, span[0])
            end = span[1]
        text = memoryview(self._buffer)
        for group in _groups(spans, self._piece_bytes):
            if sink.take(text[group[0][0] : group[-1][1]]):
                self._any_taken = True
                continue
            for span in group:
                self._mend(sink, *span)
        if found.close >= 0:
            self._closed = True
            self._check_between(end, found.close)
            end = found.close + 1
        elif len(found.starts) > len(spans):
            self._check_between(end, found.starts[-1])
            end = found.starts[-1]
        elif not found.in_text:
            self._check_between(end, len(self._buffer))
            end = len(self._buffer)
        self._buffer = self._buffer[end:]
        return end > 0

    def _check_between(self, start: int, end: int) -> None:
        if self._buffer[start:end].strip(_BETWEEN):
            self._drop(start)

    def _mend(self, sink: Sink, start: int, end: int) -> None:
        """Take what brackets say is one event. If it is not, a quote may be missing that makes it of several."""
        if sink.mend(self._buffer[start:end]):
            self._any_taken = True
            return
        taken, last = self._between_gaps(sink, start, end)
        if not taken or not sink.mend(self._buffer[last:end]):
            self._drop(last if taken else start)

    def _by_trial(self, sink: Sink) -> bool:
        """Where quotes do not pair up: take what stands between two gaps and is an event. Whether there was any."""
        taken, start = self._between_gaps(sink, 0, len(self._buffer))
        if taken:
            self._buffer = self._buffer[start:]
        return taken > 0

    def _between_gaps(self, sink: Sink, low: int, high: int) -> tuple[int, int]:
        """Take the events of a stretch of broken text that stand between gaps: how many, and the start of the last.

        That one is left: nothing says that it ends where the stretch does.
        """
        taken, start = 0, low
        lost: list[int] = []
        for gap in _GAP.finditer(self._buffer, low, high):
            if sink.mend(self._buffer[start : gap.start() + 1]):
                taken += 1
            elif taken or len(lost) < _MOST_TRIES:
                lost.append(start)
            else:
                break
            start = gap.end()
        if taken:
            self._any_taken = True
            for where in lost:
                self._drop(where)
        return taken, start

    def _drop(self, where: int) -> None:
        if not self.unreadable:
            self.first_unreadable = self._offset + where
        self.unreadable += 1
        if self.unreadable >= _MOST_UNREADABLE and not self._any_taken:
            raise self._no_events()

    def _no_events(self) -> TraceError:
        return TraceError(
            f"{self._path}: byte {self.first_unreadable:,} of its text: what is listed here are no events, "
            "so this is no trace; give the file that export_chrome_trace() wrote"
        )

    def _read_tail(self) -> None:
        while len(self._buffer) <= _MOST_METADATA_BYTES:
            if not self._more():
                self.tail = self._buffer
                return
        self.tail_left_out = True


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


def _what_is(text: bytes) -> str:
    """What a text that is no JSON might be, and what to do."""
    if text.startswith(b"SQLite format 3\0"):
        return (
            "this is an SQLite database, such as Nsight Systems exports; "
            "unstall reads what torch.profiler writes with export_chrome_trace()"
        )
    return (
        f"byte 0: {text[:1]!r} begins neither an object nor a list, so this is no JSON; "
        "give the file that export_chrome_trace() wrote"
    )
