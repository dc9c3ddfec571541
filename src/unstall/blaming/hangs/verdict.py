"""Works out what each stream of a process is doing, and where the Python threads of the process
are.

The facts come from two sources. The ring file of the process records the work that the process put
on streams. The answer of its agent says which streams have finished, and where the threads are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec
import numpy as np

from unstall.blaming.culprit import Unfinished, next_mark, on_stream
from unstall.blaming.hangs.answers import DONE, NOT_ASKED, NOT_READY, Answer
from unstall.blaming.hangs.stacks import collective_in, parse, users_line
from unstall.blaming.result import Process, Standing, Suspect, Thread
from unstall.blaming.ring import COPY, GRAPH, KERNEL, MEMSET, RECORD, WAIT, WAIT_VALUE, WRITE_VALUE, Ring, Rows
from unstall.blaming.verdict import line_of, name_of_stream, suspect_of

Waits = Literal["kernel", "graph", "copy", "memset", "collective", "event", "value", "unknown"]
_WAITS: dict[int, Waits] = {GRAPH: "graph", COPY: "copy", MEMSET: "memset", WAIT: "event", WAIT_VALUE: "value"}
_NCCL = re.compile(r"nccl(?:Dev|Symk|Symm)?\w*Kernel_([A-Za-z]+)")
_ENDS = re.compile(
    r"2at6native|cutlass|cublas|gem[mv]|xmma|nvjet|cudnn|fmha|pytorch_flash|3cub|thrust|triton_(?:poi|red|per|tem)_"
)
"""Matches the linker symbols of kernels that are known to end."""
_MOST_FRAMES, _MOST_THREADS = 60, 16


def standing(ring: Ring, answer: Answer) -> tuple[Standing, ...]:
    """Returns what each stream with unfinished work is doing.

    Streams that surely have unfinished work of their own come first. The other streams may have
    finished, or may only wait for another stream.

    Args:
        ring: The work that the process put on streams.
        answer: Which of its streams have finished, as the process answered.
    """
    pending = _Pending(_with_answers(ring, answer))
    results = [*answer.results, *[NOT_ASKED] * len(ring.tables["streams"])]
    found = {row: each for row in range(len(ring.tables["streams"])) if (each := _on(pending, row, results[row]))}
    waits_for = {row: on for row, (_, on) in found.items()}
    told = {
        row: msgspec.structs.replace(
            each,
            circular=_leads_to_itself(row, waits_for),
            is_sure=each.is_sure and not _may_be_of_others(ring, row, found),
        )
        for row, (each, _) in found.items()
    }
    return tuple(sorted(told.values(), key=lambda each: (not each.is_sure, not each.circular, each.waits == "event")))


def described(process: Process, answer: Answer, main_thread: int, ring: Ring | None) -> Process:
    """Returns a copy of `process` that also says where its Python threads are, and what its streams
    are doing.

    Args:
        process: The process.
        answer: What the process answered: where its threads are, and which of its streams have
            finished.
        main_thread: The identifier of Python's main thread.
        ring: The work that the process put on streams; None if this is not known.
    """
    streams = standing(ring, answer) if ring is not None else ()
    main: tuple[Any, ...] = ()
    threads: list[Thread] = []
    for stack in parse(answer.stacks):
        at = users_line(stack.frames)
        if stack.thread == main_thread:
            main = stack.frames[:_MOST_FRAMES]
        if at is not None and len(threads) < _MOST_THREADS:
            frames = stack.frames[:_MOST_FRAMES]
            told = collective_in(frames)
            threads.append(Thread(at=at, stack=frames, is_main=stack.thread == main_thread, collective=told))
    collectives = (collective_in(main), *(thread.collective for thread in threads), _of_nccl(streams))
    return msgspec.structs.replace(
        process,
        worked=ring is not None and int(ring.header["next"]) > 1,
        at=users_line(main),
        stack=main,
        threads=tuple(threads),
        streams=streams,
        collective=next((told for told in collectives if told), ""),
    )


def _with_answers(ring: Ring, answer: Answer) -> Ring:
    """Returns a copy of the ring in which the work of a stream counts as done if the driver
    answered that the stream has finished.
    """
    streams = ring.tables["streams"].copy()
    for row, (result, last) in enumerate(zip(answer.results, answer.last, strict=True)):
        if row < len(streams) and result == DONE:
            streams[row]["settled"] = last
    return Ring(ring.header, {**ring.tables, "streams": streams})


class _Pending:
    """Finds, for one stream at a time, the calls in a ring file whose work is not done. The ring
    file has the last calls by which a process put work on streams.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._held: dict[int, bool] = {}

    def rows(self, stream: int, before: int | None = None) -> Rows:
        """Returns the calls that put work on a stream and whose work may be unfinished, from the
        first one that can block the stream.

        Args:
            stream: The index of the stream in the ring's table of streams.
            before: The number of a call. Only calls with lower numbers are returned. If None, there
                is no limit.
        """
        rows = self.ring.of_stream(stream)
        until = len(rows) if before is None else int(np.searchsorted(rows["number"], np.uint64(before)))
        rows = rows[int(np.searchsorted(rows["number"], np.uint64(self.ring.done[stream]), side="right")) : until]
        first = next((at for at, each in enumerate(rows) if self._holds_up(each)), len(rows))
        held: Rows = rows[first:]
        return held

    def window(self, stream: int) -> Rows:
        """Returns the calls whose work the stream may be executing now, or at whose work it may be
        waiting.

        The device has reached the last mark before this work, but not the first mark after it. A
        mark is a number that the device writes when it reaches a point of the stream.
        """
        rows = self.rows(stream)
        rows = rows[: next_mark(rows, 0)]
        window: Rows = rows[np.array([self._holds_up(each) for each in rows], bool)]
        return window

    def write_of(self, wait: Any) -> Any | None:
        """Returns the unfinished write for which the call `wait` waits; None if there is no such
        write.

        The call waits for a value at a memory address. If several writes go to this address,
        prefers a write of the awaited value.
        """
        entries = self.ring.entries
        writes = entries[(entries["kind"] == WRITE_VALUE) & (entries["event"] == wait["event"])]
        held = [each for each in writes if len(self.rows(int(each["stream"]), int(each["number"])))]
        return next((each for each in held if each["value"] == wait["value"]), held[0] if held else None)

    def _holds_up(self, entry: Any) -> bool:
        kind, number = int(entry["kind"]), int(entry["number"])
        if kind != WAIT:
            return kind < RECORD or kind == WAIT_VALUE
        if number not in self._held:
            record = self.ring.record_of(entry)  # recorded before, so this ends
            held = record is not None and len(self.rows(int(record["stream"]), int(record["number"])))
            self._held[number] = bool(held)
        return self._held[number]


def _on(pending: _Pending, stream: int, result: int) -> tuple[Standing, int | None] | None:
    """Returns what a stream is doing. Returns None if the stream is done.

    Returns:
        (standing, row): what the stream is doing, and the row of the other stream for which it waits. `row` is None if
        the stream waits for no other stream.
    """
    if result not in (NOT_READY, NOT_ASKED):
        return None
    ring, rows = pending.ring, pending.window(stream)
    name = name_of_stream(ring, stream)
    if not len(rows):
        return (Standing(stream=name, waits="unknown"), None) if result == NOT_READY else None
    waits = _WAITS.get(int(rows["kind"][0]), "kernel")
    on = ring.record_of(rows[0]) if waits == "event" else pending.write_of(rows[0]) if waits == "value" else None
    work = _work(ring, stream, rows[:1] if waits == "event" else rows)
    if waits == "kernel" and _NCCL.search(" ".join(work.work)):
        waits = "collective"
    told = Standing(
        stream=name,
        waits=waits,
        work=work,
        on=line_of(ring.place(int(on["line"]))) if on is not None else None,
        on_stream=name_of_stream(ring, int(on["stream"])) if on is not None else "",
        is_sure=result == NOT_READY,
    )
    return told, int(on["stream"]) if on is not None else None


def _work(ring: Ring, stream: int, rows: Rows) -> Suspect:
    if rows["kind"][0] == GRAPH:
        branches = [each for each in on_stream(ring, stream) if each.replays is not None]
        if branches:
            return suspect_of(ring, replace(branches[0], entries=_likeliest_first(ring, branches[0].entries)))
    return suspect_of(ring, Unfinished(_likeliest_first(ring, rows)))


def _likeliest_first(ring: Ring, rows: Rows) -> Rows:
    """Sorts the entries so that kernels of unknown origin come first. Kernels of torch and NVIDIA are known to end."""
    if rows["kind"][0] >= RECORD:
        return rows
    ends = [bool(_ENDS.search(ring.kernel(int(each["kernel"])))) or each["kind"] != KERNEL for each in rows]
    sorted_rows: Rows = rows[np.argsort(ends, kind="stable")]
    return sorted_rows


def _may_be_of_others(ring: Ring, stream: int, found: Mapping[int, tuple[Standing, int | None]]) -> bool:
    """Returns whether this stream may only be waiting for work of other streams.

    Without an event, only the legacy default stream waits for other streams. If another stream waits for an event of
    this stream, this stream has work of its own.
    """
    row = ring.tables["streams"][stream]
    is_legacy = not row["handle"] and not row["thread"]
    others = [each for other, each in found.items() if other != stream and each[0].is_sure]
    return bool(is_legacy and others and not any(on == stream for _, on in others))


def _leads_to_itself(row: int, waits_for: dict[int, int | None]) -> bool:
    seen: set[int] = set()
    following = waits_for.get(row)
    while following is not None and following not in seen:
        if following == row:
            return True
        seen.add(following)
        following = waits_for.get(following)
    return False


def _of_nccl(streams: Sequence[Standing]) -> str:
    """Returns the collective, such as "AllReduce", of an NCCL kernel that one of `streams` is running.

    Returns "" if no stream is running an NCCL kernel.
    """
    for stream in streams:
        for name in stream.work.work if stream.work and stream.is_sure else ():
            if found := _NCCL.search(name):
                return found[1]
    return ""
