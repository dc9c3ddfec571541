"""The texts of a picture: each is stored once, and shortened to 400 characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.timeline.columns import (
    I32,
    CopyDirection,
    Device,
    DeviceKind,
    HostMemory,
    Timeline,
    WaitKind,
)

TEXT_LIMIT = 400
"""The largest number of characters in a text of a picture."""

_DIRECTION = {
    CopyDirection.HOST_TO_DEVICE: "host → device",
    CopyDirection.DEVICE_TO_HOST: "device → host",
    CopyDirection.DEVICE_TO_DEVICE: "device → device",
    CopyDirection.PEER_TO_PEER: "device → other device",
    CopyDirection.HOST_TO_HOST: "host → host",
}
_MEMORY = {HostMemory.PAGEABLE: "pageable", HostMemory.PINNED: "pinned"}


class Texts:
    """A table of texts. The columns of a picture refer to a text by its index in this table.

    The first texts are those of `timeline.strings`, with the same indices. More can be added.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = list(strings)
        self._index: dict[str, int] = {}
        self._kept: list[int] = list(range(len(strings)))

    def add(self, text: str) -> int:
        """Adds `text` unless it was added before, and returns its index."""
        if text not in self._index:
            self._index[text] = len(self._strings)
            self._strings.append(text)
        return self._index[text]

    def add_all(self, texts: Iterable[str]) -> I32:
        """Adds each of `texts` unless it was added before, and returns their indices."""
        return np.array([self.add(text) for text in texts], np.int32)

    def keep(self, *columns: NDArray[np.integer]) -> I32:
        """Drops all texts whose index is in none of `columns`, and numbers the others anew.

        Returns:
            An array that maps each old index to the new one, or to -1 if the text was dropped. One
            more -1 stands at its end, so that an old index of -1, which means "no text", stays -1.
        """
        used = np.unique(np.concatenate(columns))
        used = used[used >= 0]
        self._kept = used.tolist()
        renumber = np.full(len(self._strings) + 1, -1, np.int32)
        renumber[used] = np.arange(len(used))
        return renumber

    def strings(self) -> tuple[str, ...]:
        """Returns the kept texts in the order of their indices, each shortened to `TEXT_LIMIT` characters."""
        return tuple(_cut(self._strings[index]) for index in self._kept)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"


def described_copies(texts: Texts, device: Device, rows: NDArray[np.integer]) -> I32:
    """Returns, for each op in `rows` (rows of `device`), the index of its description in `texts`.

    The description of a copy or memset is a text such as "host → device, pageable, 1,048,576
    bytes". A kernel has none: its index is -1.
    """
    detail = np.full(len(rows), -1, np.int32)
    at = np.flatnonzero(device.kind[rows] != DeviceKind.KERNEL)
    moved = rows[at]
    columns = (device.direction[moved], device.host_memory[moved], device.bytes[moved])
    distinct, inverse = np.unique(np.stack([c.astype(np.int64) for c in columns]), axis=1, return_inverse=True)
    described = texts.add_all(_copy_text(*fields) for fields in distinct.T.tolist())
    if len(at):
        detail[at] = described[inverse.reshape(-1)]
    return detail


def _copy_text(direction: int, memory: int, size_bytes: int) -> str:
    parts = (
        _DIRECTION.get(CopyDirection(direction)),
        _MEMORY.get(HostMemory(memory)),
        f"{size_bytes:,} bytes" if size_bytes >= 0 else None,
    )
    return ", ".join(part for part in parts if part)


def described_waits(texts: Texts, timeline: Timeline) -> I32:
    """Returns, for each row of `timeline.host`, the index of its description in `texts`, or -1 if
    it has none.

    The description of a wait says what the call waits for. The description of an operator is the
    shapes of its inputs.
    """
    waits, streams = timeline.waits, timeline.streams
    detail = timeline.host.shapes.copy()
    stream = np.where(waits.kind == WaitKind.STREAM_EVENT, waits.on_stream, waits.stream)
    columns = np.stack([waits.kind.astype(np.int32), stream, waits.inferred.astype(np.int32)])
    distinct, inverse = np.unique(columns, axis=1, return_inverse=True)
    described = texts.add_all(
        _wait_text(kind, int(streams.stream[row]) if row >= 0 else None, bool(inferred))
        for kind, row, inferred in distinct.T.tolist()
    )
    if len(waits):
        detail[waits.host] = described[inverse.reshape(-1)]
    return detail


def _wait_text(kind: int, stream: int | None, inferred: bool) -> str:
    on = "" if stream is None else f" stream {stream}"
    what = {
        WaitKind.STREAM: f"waits for{on or ' a stream'}",
        WaitKind.EVENT: f"waits for an event{on and ' on' + on}",
        WaitKind.DEVICE: "waits for the whole device",
        WaitKind.STREAM_EVENT: f"makes a stream wait for an event{on and ' on' + on}",
    }[WaitKind(kind)]
    return f"{what} (inferred)" if inferred else what
