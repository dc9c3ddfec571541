"""Reads Chrome traces of Kineto, the recorder of `torch.profiler`, into `Events`.

The text goes in pieces through the modules `unpack`, `pieces` and `decode` into `columns`. Only a
few pieces and the columns are in memory at a time, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from unstall.errors import TraceError
from unstall.read.columns import EventTable
from unstall.read.decode import Decoder
from unstall.read.events import Events
from unstall.read.find_events import go_to_events, rest
from unstall.read.metadata import (
    described_clock_reads,
    described_dependencies,
    described_faults,
    described_races,
    described_uploads,
    line_digests,
    meta_of,
)
from unstall.read.pieces import PIECE_BYTES, Cutter
from unstall.read.process_settings import collector_off
from unstall.read.scan import scanned
from unstall.read.schema import Event
from unstall.read.text_window import TextWindow
from unstall.read.unpack import blocks
from unstall.timeline.limits import MOST_TEXT

_REPAIRED_AT_ONCE = 4096


def read(path: Path, progress: Callable[[int, int], None] | None = None) -> Events:
    """Reads the events of a trace, as far as they can be read. `Meta.notes` of the result lists
    repairs and missing events.

    Args:
        path: The file.
        progress: A function that is called with (bytes read so far, size of the file in bytes)
            while the file is read.

    Raises:
        TraceError: The file cannot be opened, is not a trace, or exceeds a limit. The limits are 16
            MiB per event, 512 Mi characters of distinct strings, and text of 250 times the
            compressed file's size.
    """
    with closing(blocks(path, progress)) as text_blocks:
        return events_of(text_blocks, path)


def events_of(text_blocks: Iterator[bytes], path: Path, piece_bytes: int = PIECE_BYTES) -> Events:
    """Returns the events in the text of a trace.

    Args:
        text_blocks: The uncompressed text, in blocks of any size.
        path: The file, for messages.
        piece_bytes: The size of the pieces in which the text is decoded, in bytes.

    Raises:
        TraceError: The text is not a trace, or exceeds a limit.
    """
    window = TextWindow(text_blocks)
    sink = _Sink(path)
    with collector_off():
        before = go_to_events(window, path)
        cutter = Cutter(window, sink, path, piece_bytes)
        cutter.run()
        sink.flush()
        if (window.damage or cutter.cut_off) and not sink.decoder.events and not cutter.unreadable:
            why = window.damage or "cut off"
            raise TraceError(
                f"{path}: {why} at byte {window.end:,} of the text, before the first event ended; record the run again"
            )
        after = b"}" if before is None or cutter.cut_off else rest(window)
        meta = meta_of(before or b"", after, window.end, path)
        notes, lost = _notes(window, cutter, sink.decoder)
        events = sink.table.finish(replace(meta, notes=(*notes, *meta.notes), sound=meta.sound and not lost))
        events.races = described_races(before or b"", after)
        events.dependencies = described_dependencies(before or b"", after)
        events.uploads = described_uploads(before or b"", after)
        events.clock_reads = described_clock_reads(before or b"", after)
        events.faults = described_faults(before or b"", after)
        events.digests = line_digests(before or b"", after)
        return events


class _Sink:
    """Decodes events and adds them to the table of events. Events that had to be repaired are
    collected, and added in batches.
    """

    def __init__(self, path: Path) -> None:
        self.decoder = Decoder()
        self.table = EventTable()
        self._path = path
        self._repaired: list[Event] = []

    def take(self, piece: memoryview | bytes) -> bool:
        found = scanned(piece)
        rows = None
        if found is not None:
            others = [piece[start:end] for start, end in found.others.tolist()]
            rows = self.decoder.piece(b"[%b]" % b",".join(others))
        if rows is None:
            found, rows = None, self.decoder.piece(piece)
        if rows is None:
            return False
        self.flush()
        if found is not None:
            self.decoder.events += found.count
            self.table.add_scanned(found)
        self.table.add(rows)
        self._check()
        return True

    def repair(self, event: bytes) -> bool:
        repaired = self.decoder.event(event)
        if repaired is None:
            return False
        self._repaired.append(repaired)
        if len(self._repaired) >= _REPAIRED_AT_ONCE:
            self.flush()
        return True

    def flush(self) -> None:
        if self._repaired:
            self.table.add(self.decoder.exact(self._repaired))
            self._repaired = []
            self._check()

    def _check(self) -> None:
        if self.table.strings.size > MOST_TEXT:
            raise TraceError(
                f"{self._path}: its names and stacks are longer than {MOST_TEXT >> 20} Mi characters together; "
                "record fewer steps, or without stacks"
            )


def _notes(window: TextWindow, cutter: Cutter, decoder: Decoder) -> tuple[list[str], bool]:
    """Returns `(notes, lost)`: a sentence for each problem with the events of the file, and whether
    any events are missing.
    """

    def events(count: int) -> str:
        return f"{count:,} event{'' if count == 1 else 's'}"

    ended = f"{window.damage or 'cut off'} at byte {window.end:,} of the text, after {events(decoder.events)}"
    first = f"the first at byte {cutter.first_unreadable:,} of the text"
    broken = "(control characters, bad UTF-8 or escapes, NaN)"
    missing = (
        (window.damage or cutter.cut_off, ended),
        (cutter.unreadable, f"dropped {events(cutter.unreadable)} that could not be read, {first}"),
        (decoder.timeless, f"dropped {events(decoder.timeless)} that had no time"),
        (decoder.beyond, f"dropped {events(decoder.beyond)} that had a time out of range"),
    )
    repaired = (
        (decoder.repaired_text, f"repaired the text of {events(decoder.repaired_text)} {broken}"),
        (decoder.repaired_values, f"replaced values of the wrong type in {events(decoder.repaired_values)}"),
        (decoder.negative, f"set the negative duration of {events(decoder.negative)} to 0"),
    )
    notes = [note for happened, note in missing + repaired if happened]
    return notes, any(happened for happened, _ in missing)
