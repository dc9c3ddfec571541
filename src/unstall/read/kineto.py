"""Chrome traces as Kineto, the recorder of `torch.profiler`, writes them → `Events`.

Text flows in pieces from `unpack` through `cut` and `decode` into `columns`: what is held in memory is a few pieces
and the columns, whatever the size of the file.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from unstall.errors import TraceError
from unstall.read.columns import Table
from unstall.read.cut import PIECE_BYTES, Text
from unstall.read.decode import Decoder
from unstall.read.events import Events
from unstall.read.metadata import meta_of
from unstall.read.schema import Event
from unstall.read.unpack import blocks

_MOST_TEXT = 512 << 20  # characters of distinct strings
_MENDED_AT_ONCE = 4096


def read(path: Path, progress: Callable[[int, int], None] | None = None) -> Events:
    """All of a trace that can be read; `Meta.notes` says what was mended and what is missing.

    `progress` is called with (bytes read, bytes in all). Raises TraceError for what is no trace, cannot be opened,
    or breaks a limit: 16 MiB an event, 512 Mi characters of distinct strings, 250 times its packed size.
    """
    return events_of(blocks(path, progress), path)


def events_of(text_blocks: Iterator[bytes], path: Path, piece_bytes: int = PIECE_BYTES) -> Events:
    """The same for text in blocks of any size, which came from `path`."""
    text = Text(text_blocks, path, piece_bytes)
    sink = _Sink(path)
    with _collector_off():
        text.read(sink)
        sink.flush()
        meta = meta_of(text, path)
        notes = (*_notes(text, sink.decoder), *meta.notes)
        lost = text.damage or text.cut_off or text.unreadable or sink.decoder.timeless or sink.decoder.beyond
        return sink.table.finish(replace(meta, notes=notes, sound=meta.sound and not lost))


class _Sink:
    """Takes events into a table; what had to be mended waits until there are enough for a batch."""

    def __init__(self, path: Path) -> None:
        self.decoder = Decoder()
        self.table = Table()
        self._path = path
        self._mended: list[Event] = []

    def take(self, piece: memoryview) -> bool:
        rows = self.decoder.piece(piece)
        if rows is None:
            return False
        self.flush()
        self.table.add(rows)
        self._check()
        return True

    def mend(self, event: bytes) -> bool:
        mended = self.decoder.event(event)
        if mended is None:
            return False
        self._mended.append(mended)
        if len(self._mended) >= _MENDED_AT_ONCE:
            self.flush()
        return True

    def flush(self) -> None:
        if self._mended:
            self.table.add(self.decoder.exact(self._mended))
            self._mended = []
            self._check()

    def _check(self) -> None:
        if self.table.strings.size > _MOST_TEXT:
            raise TraceError(
                f"{self._path}: its names and stacks are longer than {_MOST_TEXT >> 20} Mi characters together; "
                "record fewer steps, or without stacks"
            )


@contextmanager
def _collector_off() -> Iterator[None]:
    """Nothing here makes cycles, and looking for them among a million rows takes longer than to read them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _notes(text: Text, decoder: Decoder) -> list[str]:
    """One sentence for each thing that was wrong."""

    def events(count: int) -> str:
        return f"{count:,} event{'' if count == 1 else 's'}"

    notes = []
    if text.damage:
        notes.append(f"{text.damage} at byte {text.length:,} of the text; {events(decoder.events)} before it were read")
    elif text.cut_off:
        notes.append(f"cut off at byte {text.length:,} of the text; {events(decoder.events)} before it were read")
    if text.tail_left_out:
        notes.append("the metadata after its events is too long, and was not read")
    if text.unreadable:
        first = f"the first at byte {text.first_unreadable:,} of the text"
        notes.append(f"{events(text.unreadable)} could not be read and were dropped, {first}")
    if decoder.timeless:
        notes.append(f"{events(decoder.timeless)} had no time and were dropped")
    if decoder.beyond:
        notes.append(f"{events(decoder.beyond)} had a time out of all range and were dropped")
    if decoder.mended_text:
        notes.append(
            f"{events(decoder.mended_text)} were not valid JSON (control characters, bad UTF-8 or escapes, NaN) "
            "and were mended"
        )
    if decoder.mended_values:
        notes.append(
            f"{events(decoder.mended_values)} held values of the wrong type, which were turned into text or left out"
        )
    if decoder.negative:
        notes.append(f"{events(decoder.negative)} had a negative duration and count as 0")
    return notes
