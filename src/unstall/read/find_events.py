"""Finds the list of events in the text of a trace, and returns the text before and after this list."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import msgspec

from unstall.decoding import from_json
from unstall.errors import TraceError
from unstall.read import perfetto
from unstall.read.list_items import Items
from unstall.read.text_window import TextWindow
from unstall.timeline.limits import MOST_EVENT_BYTES

_MOST_LOOKS = 1000  # at keys that turn out to be inside a string or an inner object
_LOOK_BYTES = 64  # of a text that is no JSON
_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?\s*")
_KEY = re.compile(rb'"traceEvents"\s*:\s*(?P<list>\[)?')
_EXPORT = "give the file that export_chrome_trace() wrote"


def go_to_events(window: TextWindow, path: Path) -> bytes | None:
    """Removes the text before a trace's list of events from the window, so that the window begins
    with the "[" of this list.

    Returns the removed text: the JSON members before the list. Returns None if the whole file is
    only a list.

    Args:
        window: The part of the file's text that is in memory.
        path: The file, for messages.

    Raises:
        TraceError: The file has no list of events.
    """
    while bytes(window.text[:1]) in (b"", b"\n") and len(window) < perfetto.LOOK_BYTES and window.more():
        pass
    if perfetto.begins(bytes(window.text[: perfetto.LOOK_BYTES])):
        raise TraceError(f"{path}: {perfetto.WHAT_IT_IS}")
    while (begin := _begin(window)) == len(window) and len(window) <= MOST_EVENT_BYTES:
        if not window.more():
            raise TraceError(f"{path}: {window.damage or 'there is nothing in it'}; record the run again")
    first = bytes(window.text[begin : begin + 1])
    if first == b"[":
        window.skip(begin)
        return None
    if first != b"{":
        raise TraceError(f"{path}: {_what_is(window.text[begin : begin + _LOOK_BYTES])}")
    start, end = _find_list(window, begin + 1, path)
    before = bytes(window.text[begin + 1 : start])
    window.skip(end - 1)
    return before


def _begin(window: TextWindow) -> int:
    """Returns where the text begins, after white space. Does not copy the text, which may be long."""
    found = _BLANK.match(window.text)
    return found.end() if found else 0


def rest(window: TextWindow) -> bytes | None:
    """Returns the text of a trace file after its list of events, up to the end of the file.
    `window` begins after this list.

    Returns None if this text is longer than 16 MiB: that is too long for a trace's metadata.
    """
    while len(window) <= MOST_EVENT_BYTES:
        if not window.more():
            return bytes(window.text)
    return None


def _find_list(window: TextWindow, begin: int, path: Path) -> tuple[int, int]:
    """Returns `(start, end)` as offsets in the window: the start of the key "traceEvents", and the
    end of the "[" after it. `begin` is where the members of the JSON object begin.

    The key should stand outside of strings and of inner objects. If no such key is found, returns a
    key that seems to be inside of one: a missing quote before the key may be the reason.

    Raises:
        TraceError: There is no list of events.
    """
    seen = Items()
    looked_at, looks = begin, 0
    fallback = None
    while looks < _MOST_LOOKS:
        for match in islice(_KEY.finditer(window.text, looked_at), _MOST_LOOKS):
            if match.end() == len(window) and not match["list"]:
                break  # the bracket may be in the next block
            looks += 1
            seen.feed(window.text[looked_at : match.start()])
            looked_at = match.start()
            if seen.between:
                if match["list"]:
                    return match.span()
                where = window.start + match.end()
                raise TraceError(f'{path}: byte {where:,}: "traceEvents" is not a list; this is no trace')
            fallback = fallback or (match.span() if match["list"] else None)
        if len(window) > MOST_EVENT_BYTES or not window.more():
            break
    if _is_whole(window, begin):
        raise TraceError(f'{path}: there is no "traceEvents" in it; {_EXPORT}')
    if fallback:
        return fallback
    if len(window) > MOST_EVENT_BYTES:
        raise TraceError(f'{path}: no "traceEvents" in its first {MOST_EVENT_BYTES >> 20} MiB; {_EXPORT}')
    why = window.damage or "cut off"
    raise TraceError(f"{path}: {why} at byte {window.end:,} of the text, before the first event; record the run again")


def _is_whole(window: TextWindow, begin: int) -> bool:
    """Returns whether "{" followed by the text of the window is a complete and valid JSON object."""
    try:
        from_json(b"{" + window.text[begin:], msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _what_is(text: bytearray) -> str:
    """Returns a sentence about a file that is not JSON: what the file probably is, and what to give
    instead. `text` is the start of the file.
    """
    if text.startswith(b"SQLite format 3\0"):
        return f"this is an SQLite database, such as Nsight Systems exports, and no trace of torch.profiler; {_EXPORT}"
    return f"byte 0: {bytes(text[:1])!r} begins neither an object nor a list, so this is not JSON; {_EXPORT}"
