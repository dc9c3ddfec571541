"""The report of `unstall explain` on a table that `torch.profiler` printed."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.diagnose.profiler_table import Said, TableResult
from unstall.document.document import Block, Bullets, Column, Document, Entries, Entry, Row, Span, Table, Words, words
from unstall.document.plain import plain
from unstall.figures import counted, duration, share
from unstall.report.wording import row


def document(result: TableResult) -> Document:
    """Returns the report of `unstall explain` on a table that `torch.profiler` printed."""
    blocks: list[Block | None] = [
        _totals(result),
        _entries("What it tells", result, ("cause", "figure")),
        _entries("What it cannot tell", result, ("unknown",)),
        Bullets(words("Notes"), tuple(words(note) for note in result.notes)) if result.notes else None,
    ]
    return Document(
        title="unstall",
        about=(
            words(Span(result.path, "subject")),
            words(Span(f"a table of torch's profiler · {counted(result.rows, 'row')}", "dim")),
        ),
        summary=plain(result.summary),
        blocks=tuple(block for block in blocks if block is not None),
        data=result,
    )


def _totals(result: TableResult) -> Table | None:
    totals = result.totals
    host = totals.host_ns
    parts: tuple[tuple[str, int | None], ...] = (
        ("in calls of CUDA", totals.runtime_ns),
        ("launching kernels", totals.launch_ns),
        ("waiting for the device", totals.wait_ns),
    )
    rows: list[Row] = []
    if host:
        rows.append(row("host", duration(host), ""))
        rows += [row(f"  {name}", duration(ns), share(ns, host)) for name, ns in parts if ns]
    if totals.device_ns is not None:
        rows.append(row("device", duration(totals.device_ns), ""))
    return Table(words("Sums"), (Column("time"), Column("of the host")), tuple(rows)) if rows else None


def _entries(title: str, result: TableResult, kinds: tuple[str, ...]) -> Entries | None:
    entries = tuple(
        Entry(words(Span(plain(said.title), "strong")), (), tuple(_details(said)))
        for said in result.said
        if said.kind in kinds
    )
    return Entries(words(title), (), entries) if entries else None


def _details(said: Said) -> Iterator[tuple[str, Words]]:
    for label, text in (("saw", said.saw), ("do", said.fix)):
        if text:
            yield label, words(plain(text))
