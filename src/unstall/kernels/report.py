"""`KernelReport`: the result of `inspect_kernel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unstall._version import __version__
from unstall.document.document import (
    Annotation,
    Column,
    Document,
    Entries,
    Entry,
    Prose,
    Row,
    Span,
    Table,
    Words,
    words,
)
from unstall.document.shown import Shown
from unstall.figures import counted, decimal_size, duration, listed, share
from unstall.kernels.accesses import Dim, Place
from unstall.kernels.model import ModelledTime
from unstall.kernels.races import KernelRace, RaceSide
from unstall.kernels.traffic import SECTOR_BYTES, Traffic

SCHEMA = "unstall.kernel/1"


@dataclass(frozen=True, slots=True, repr=False)
class KernelReport(Shown):
    """A report about one launch of a kernel: how the launch used memory, and a model of its time on a GPU.

    Several threads may read the report at the same time.

    Attributes:
        kernel: The name of the kernel.
        file: The path of the source file that contains the kernel.
        line: The number of the line at which the kernel begins in `file`.
        grid: The number of blocks, as (x, y, z).
        block: The number of threads in each block, as (x, y, z).
        barriers: The number of barriers that each thread passed. If the blocks differ, the number for the block with
            the most barriers.
        races: The races that were found, sorted by the positions of their lines in the source.
        traffic: Counts of the memory accesses.
        time: The modelled time of the launch.
    """

    kernel: str
    file: str
    line: int
    grid: Dim
    block: Dim
    barriers: int
    races: tuple[KernelRace, ...]
    traffic: Traffic
    time: ModelledTime

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report as a `Document`: its headings, tables and sentences, from which each output format is
        made.

        If `scrub_paths` is True, the document shows only the names of files, without their folders.
        """
        at = _at(Place(self.file, self.line, self.kernel), scrub_paths)
        launch = f"{_size(self.grid, 'block')} of {_size(self.block, 'thread')}, {counted(self.barriers, 'barrier')}"
        return Document(
            title=f"Kernel {self.kernel}",
            about=(words(Span(self.kernel, "name"), f": {launch}, run by Numba's simulator"), words(Span(at, "place"))),
            summary=self._summary(),
            blocks=(
                *([_entries(self.races, scrub_paths)] if self.races else []),
                self._counts(),
                *([self._lines(scrub_paths)] if self.traffic.lines else []),
                self._times(),
                Prose((words(self._model()),), small=True),
            ),
            data=self._data(scrub_paths),
            annotations=tuple(_annotation(race) for race in self.races),
        )

    def _summary(self) -> str:
        if not self.races:
            return "No races: barriers order all accesses of this launch."
        names = listed(list(dict.fromkeys(race.memory for race in self.races)))
        return f"{counted(len(self.races), 'race')}, on {names}: the values depend on which thread comes first."

    def _counts(self) -> Table:
        names = ("reads", "writes", "atomics")
        rows = [
            Row(
                words(f"{each.space} memory"),
                tuple(
                    figure
                    for amount in (each.reads, each.writes, each.atomics)
                    for figure in (f"{amount.total:,}", f"{amount.most:,}")
                ),
            )
            for each in self.traffic.counts
        ]
        columns = tuple(Column(name) for name in names for name in (name, "a thread"))
        return Table(words("Accesses"), columns, tuple(rows))

    def _lines(self, scrub_paths: bool) -> Table:
        rows = [
            Row(
                words(Span(_at(each.place, scrub_paths), "place"), f"  {each.place.source}"),
                (f"{each.requests:,}", f"{each.sectors:,}", f"{each.least_sectors:,}"),
            )
            for each in self.traffic.lines
        ]
        columns = Column("requests"), Column("sectors"), Column("at least")
        return Table(words("Global memory by line"), columns, tuple(rows))

    def _times(self) -> Table:
        time = self.time
        rows = (
            ("an empty kernel", duration(time.empty_ns)),
            (f"memory, {decimal_size(self.traffic.requested_bytes)}", duration(time.memory_ns)),
            ("kernel", duration(time.kernel_ns)),
            ("launch, on the host", duration(time.launch_ns)),
        )
        table = tuple(Row(words(name), (figure,)) for name, figure in rows)
        return Table(words(f"Modelled time on {time.device}"), (Column("time"),), table, compact=True)

    def _model(self) -> str:
        time = self.time
        used = share(round(1000 * time.used), 1000)
        return (
            f"A request is a warp of 32 threads that asks for memory. It gets sectors of {SECTOR_BYTES} bytes: at "
            "least as many as if its elements lay side by side. The time is a model, not a measurement. How good it is "
            f"cannot be told. It moves the sectors at {used} of the GPU's peak rate: the part of its "
            f"{time.multiprocessors} multiprocessors that work (blocks: {time.blocks:,}). Arithmetic, shared "
            "memory and barriers take no time in it. Launches by Numba take longer. Races and counts are those of this "
            "launch. Other arguments may take other branches."
        )

    def _data(self, scrub_paths: bool) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "unstall": __version__,
            "kernel": self.kernel,
            "file": _file(self.file, scrub_paths),
            "line": self.line,
            "grid": self.grid,
            "block": self.block,
            "barriers": self.barriers,
            "races": [
                {
                    "memory": race.memory,
                    "space": race.space,
                    "between": race.between,
                    "elements": race.elements,
                    "index": race.index,
                    "first": _side_data(race.first, scrub_paths),
                    "second": _side_data(race.second, scrub_paths),
                    "fix": race.fix,
                }
                for race in self.races
            ],
            "traffic": {
                **{
                    each.space: {name: asdict(getattr(each, name)) for name in ("reads", "writes", "atomics")}
                    for each in self.traffic.counts
                },
                "requested_bytes": self.traffic.requested_bytes,
                "distinct_bytes": self.traffic.distinct_bytes,
                "lines": [
                    _place_data(each.place, scrub_paths)
                    | {"requests": each.requests, "sectors": each.sectors, "least_sectors": each.least_sectors}
                    for each in self.traffic.lines
                ],
            },
            "modelled": {**asdict(self.time), "kernel_ns": self.time.kernel_ns},
        }


def _entries(races: tuple[KernelRace, ...], scrub_paths: bool) -> Entries:
    return Entries(words("Races"), ("elements",), tuple(_entry(race, scrub_paths) for race in races))


def _entry(race: KernelRace, scrub_paths: bool) -> Entry:
    title = words(Span(race.memory, "name"), f", in {race.space} memory, between {race.between}")
    element = f"{race.memory}[{', '.join(map(str, race.index))}]"
    details = (
        ("one", _does(race.first, race.second, element, scrub_paths)),
        ("other", _does(race.second, race.first, element, scrub_paths)),
        ("fix", words(race.fix)),
    )
    return Entry(title, (f"{race.elements:,}",), details)


def _does(side: RaceSide, other: RaceSide, element: str, scrub_paths: bool) -> Words:
    block = "" if side.block == other.block and sum(side.block) == 0 else f" of block {side.block}"
    who = f"thread {side.thread}{block} {side.does} "
    return words(Span(_at(side.place, scrub_paths), "place"), f"  {side.place.source}: {who}", Span(element, "name"))


def _annotation(race: KernelRace) -> Annotation:
    first, second = race.first, race.second
    text = f"{race.memory}: line {first.place.line} {first.does}, line {second.place.line} {second.does}. {race.fix}"
    return Annotation("error", f"Race between {race.between}", text, second.place.file, second.place.line)


def _side_data(side: RaceSide, scrub_paths: bool) -> Mapping[str, Any]:
    return {**_place_data(side.place, scrub_paths), "does": side.does, "block": side.block, "thread": side.thread}


def _place_data(place: Place, scrub_paths: bool) -> dict[str, Any]:
    return {"file": _file(place.file, scrub_paths), "line": place.line, "function": place.function}


def _at(place: Place, scrub_paths: bool) -> str:
    return f"{Path(place.file).name}:{place.line}" if scrub_paths else place.at


def _file(file: str, scrub_paths: bool) -> str:
    return Path(file).name if scrub_paths else file


def _size(size: Dim, noun: str) -> str:
    x, y, z = size
    if y == z == 1:
        return counted(x, noun)
    return f"{x} x {y} {noun}s" if z == 1 else f"{x} x {y} x {z} {noun}s"
