"""The report of a GPU core dump."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from unstall.blaming.core_dump.result import CoreDump, DeviceException, Grid, Index, Instruction
from unstall.document.document import Annotation, Block, Document, Prose, Span, Words, labelled, words
from unstall.document.plain import plain, short
from unstall.document.shown import Shown
from unstall.figures import counted

_MOST_GRIDS = 8
_UNNAMED = "(anonymous namespace)"


class ShownCoreDump(Shown):
    """The report of a core dump. `print` shows the report. `save` writes it to a file. The
    extension of the file's name selects the format.
    """

    def __init__(self, dump: CoreDump) -> None:
        self.dump = dump

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report of the core dump as a document. If `scrub_paths` is set, file paths are shortened."""
        summary = _summary(self.dump)
        level: Literal["error", "notice"] = "error" if self.dump.exception else "notice"
        source = _source_of(self.dump.exception)
        return Document(
            title="unstall blame",
            about=(words(Span(plain(self.dump.file), "subject")),),
            summary=summary,
            blocks=tuple(_blocks(self.dump)),
            data=self.dump,
            annotations=(Annotation(level, "unstall blame", summary, *source),),
        )


def facts(dump: CoreDump) -> Iterator[Words]:
    """Yields the lines that say which exception a core dump shows, and where. They are lines of the
    report of the run that wrote the dump.
    """
    if dump.failed is not None:
        yield from _of_grid(dump.failed)
    for exception in dump.elsewhere if dump.failed is None else ():
        yield from _of_exception(exception)


def _summary(dump: CoreDump) -> str:
    exception, failed = dump.exception, dump.failed
    if exception is not None:
        kernel = f" in {_brief(failed.kernel)}" if failed and failed.kernel else ""
        source = _place(exception.at) if exception.at and exception.at.source else ""
        return f"{exception.name}{kernel}{f' at {source}' if source else ''}: {exception.words}."
    if dump.grids:
        names = ", ".join(dict.fromkeys(_brief(grid.kernel) or "an unknown kernel" for grid in dump.grids[:3]))
        more = f" and {counted(len(dump.grids) - 3, 'other')}" if len(dump.grids) > 3 else ""
        return f"No exception. On the device ran {names}{more}."
    return "No exception, and no kernel ran: the device was idle or waited."


def _blocks(dump: CoreDump) -> Iterator[Block]:
    for grid in dump.grids[:_MOST_GRIDS]:
        yield Prose(tuple(_of_grid(grid)))
    if len(dump.grids) > _MOST_GRIDS:
        yield Prose((words(f"{counted(len(dump.grids) - _MOST_GRIDS, 'more kernel')} ran."),))
    if dump.elsewhere:
        lines = [line for exception in dump.elsewhere for line in _of_exception(exception)]
        yield Prose((words("The device does not tell which kernel this was in:"), *lines))
    about = [
        f"{short(device.name) or 'a GPU'} ({short(device.architecture)}, {device.multiprocessors} multiprocessors)"
        for device in dump.devices
    ]
    if dump.driver:
        about.append(f"driver {dump.driver} (CUDA {dump.cuda})")
        about.append(f"written {datetime.fromtimestamp(dump.written_s, UTC):%Y-%m-%d %H:%M:%S} UTC")
    if about:
        yield Prose((words(Span("; ".join(about), "dim")),), small=True)


def _of_grid(grid: Grid) -> Iterator[Words]:
    name = short(grid.kernel, 150) or "a kernel whose name the dump does not have"
    yield labelled("kernel", Span(f"{name}, {_index(grid.blocks)} blocks of {_index(grid.threads)} threads", "name"))
    if grid.exception is not None:
        yield from _of_exception(grid.exception)
    else:
        for each in grid.standing:
            yield labelled("stands at", words(Span(_place(each), "place"), f", {counted(each.warps, 'warp')}"))
    x, y, z = grid.blocks
    resident = f"{grid.resident_blocks:,} of {x * y * z:,} blocks on {counted(grid.multiprocessors, 'multiprocessor')}"
    yield labelled("on the device", f"{resident}, {counted(grid.resident_warps, 'warp')}; grid {grid.number}")
    for line in grid.launched_by:
        yield labelled("launched by", Span(plain(line), "place"))


def _of_exception(exception: DeviceException) -> Iterator[Words]:
    yield labelled("exception", f"{exception.name}: {exception.words}")
    if exception.at is not None:
        yield labelled("instruction", Span(_place(exception.at), "place"))
        for line in exception.at.source[1:]:
            yield labelled("inlined at", Span(f"{plain(line.file)}:{line.line}", "place"))
    if exception.block is not None and exception.thread is not None:
        where = f"block {_index(exception.block)}, the warp of thread {_index(exception.thread)}"
        yield labelled(
            "first in", f"{where}; {counted(exception.warps, 'warp')} of {counted(exception.blocks, 'block')}"
        )


def _place(at: Instruction) -> str:
    offset = f"{_brief(at.function)}+{at.offset:#x}"
    return f"{plain(at.source[0].file)}:{at.source[0].line} ({offset})" if at.source else offset


def _brief(name: str) -> str:
    """Returns a function's name without the types of its result and arguments."""
    depth = 0
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not name.startswith(_UNNAMED, at):
            name = name[:at]
            break
    return short(name.removeprefix("void "), 100)


def _source_of(exception: DeviceException | None) -> tuple[str | None, int | None]:
    if exception is None or exception.at is None or not exception.at.source:
        return None, None
    return exception.at.source[0].file, exception.at.source[0].line


def _index(index: Index) -> str:
    return "({}, {}, {})".format(*index)
