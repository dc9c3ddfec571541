"""Audits programs: runs each of them in its own process by `unstall run`, and makes a row of a
table from its report.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from unstall._version import __version__
from unstall.auditing.entries import CALL, Entry, Offer
from unstall.auditing.figures_of import figures_of
from unstall.auditing.processes import Ended, Job, run_side_by_side
from unstall.auditing.reason import reason_of
from unstall.auditing.result import Audit, Failure, Row
from unstall.decoding import from_json
from unstall.result import Result

Tell: TypeAlias = Callable[[Row, int, int], None]
"""A function that is called for each new row of the table, as `tell(row, done, total)`: `done` of
`total` programs have ended.
"""
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the programs of an audit are run.

    Attributes:
        gpu: The name of the virtual GPU; None to use the machine's own GPU.
        options: Additional options for `unstall run`.
        limit_s: How many seconds the process of one program may run.
        at_once: How many processes may run at the same time.
        folder: A folder. Each process gets a folder of its own in it.
        keep: Whether to keep the output, the trace and the report of every program. If false, only
            the output of failed programs is kept.
    """

    gpu: str | None
    options: tuple[str, ...]
    limit_s: float
    at_once: int
    folder: Path
    keep: bool = False


def audit(asked: Sequence[Entry | Offer], settings: Settings, tell: Tell = lambda row, done, of: None) -> Audit:
    """Runs programs, each in a process of its own. Returns a table with a row of figures for each
    program. If a program fails, its row says why.

    Args:
        asked: The programs, and the files or modules that list programs.
        settings: How to run the programs.
        tell: Called as tell(row, done, total) after each program has ended: `done` of `total`
            programs have ended.

    Raises:
        UsageError: An `Offer` has a pattern that matches none of the names from its file or module.
    """
    entries, rows = _listed(asked, settings)
    processes = [(_process(entry.name, settings), entry.program) for entry in entries]
    of = len(rows) + len(entries)
    for process, ended in _run(processes, settings):
        rows.append(_row(process, ended, settings))
        tell(rows[-1], len(rows), of)
    return Audit(version=__version__, gpu=settings.gpu, rows=tuple(sorted(rows, key=_order)))


def _listed(asked: Sequence[Entry | Offer], settings: Settings) -> tuple[list[Entry], list[Row]]:
    """Asks each file or module which entries it lists.

    Returns (entries, failed): all entries, in the order in which the user named them, without duplicates; and a row
    for each file or module that failed to list its entries.
    """
    sources = dict.fromkeys(one.source for one in asked if isinstance(one, Offer))
    processes = [_process(source, settings) for source in sources]
    listing = [(each, ("-m", CALL, each.name, "--names", str(each.names))) for each in processes]
    names: dict[str, list[str]] = {}
    failed: list[Row] = []
    for process, ended in _run(listing, settings):
        if ended.code == 0 and process.names.exists():
            names[process.name] = json.loads(process.names.read_text())
            shutil.rmtree(process.folder)
        else:
            failed.append(_failed(process, ended, settings))
    entries: dict[Entry, None] = {}
    for one in asked:
        if isinstance(one, Entry):
            entries[one] = None
        elif one.source in names:
            entries.update(dict.fromkeys(one.entries(names[one.source])))
    return list(entries), failed


@dataclass(frozen=True, slots=True)
class _Process:
    """A process that runs an entry, or that lists the entries of a file. `folder` is for the files that the process
    writes."""

    name: str
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    @property
    def trace(self) -> Path:
        return self.folder / "run.trace.json.gz"

    @property
    def names(self) -> Path:
        return self.folder / "names.json"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of the process. If the process is killed, all temporary files that it leaves
        behind are in this folder."""
        return self.folder / "tmp"


def _process(name: str, settings: Settings) -> _Process:
    """Returns a process with a new folder. The name of the folder is a readable form of `name`."""
    readable = re.sub(r"[^\w.]+", "-", name)[-80:].strip("-.") or "entry"
    number = 1
    while True:
        folder = settings.folder / (readable if number == 1 else f"{readable}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        process = _Process(name, folder.absolute())
        process.temporary.mkdir()
        return process


def _run(programs: Sequence[tuple[_Process, tuple[str, ...]]], settings: Settings) -> Iterator[tuple[_Process, Ended]]:
    """Runs programs with `unstall run`. A program is given by the words that follow `unstall run` on the command line.
    Yields (process, ended) each time a process has ended."""
    threads = (
        {} if _THREADS in os.environ else {_THREADS: str(max(1, len(os.sched_getaffinity(0)) // settings.at_once))}
    )
    jobs = [
        Job(_command(process, words, settings), process.log, {"TMPDIR": str(process.temporary), **threads})
        for process, words in programs
    ]
    with closing(run_side_by_side(jobs, settings.at_once, settings.limit_s)) as running:
        for index, ended in running:
            process = programs[index][0]
            shutil.rmtree(process.temporary, ignore_errors=True)
            yield process, ended


def _command(process: _Process, words: Sequence[str], settings: Settings) -> list[str]:
    gpu = [] if settings.gpu is None else ["--gpu", settings.gpu]
    files = ["-o", str(process.report), "--trace", str(process.trace)]
    unstall = [sys.executable, "-m", "unstall", "run", "-q", "--no-config", "--stop"]
    return [*unstall, *gpu, *settings.options, *files, *words]


def _row(process: _Process, ended: Ended, settings: Settings) -> Row:
    if ended.code != 0 or not process.report.exists():
        return _failed(process, ended, settings)
    result = from_json(process.report.read_bytes(), Result)
    if not result.lines:
        return _failed(process, ended, settings, "nothing ran on the GPU")
    if not settings.keep:
        shutil.rmtree(process.folder)
    return Row(entry=process.name, took_s=round(ended.took_s, 1), figures=figures_of(result))


def _failed(process: _Process, ended: Ended, settings: Settings, why: str = "") -> Row:
    if not settings.keep:
        for file in (process.report, process.trace, process.names):
            file.unlink(missing_ok=True)
    if ended.code is None:
        why = f"it took longer than {settings.limit_s:g} s, the limit"
    reason = why or reason_of(ended.code or 0, process.log)
    failure = Failure(reason=reason, log=str(process.log))
    return Row(entry=process.name, took_s=round(ended.took_s, 1), failure=failure)


def _order(row: Row) -> tuple[bool, bool, float, str]:
    figures = row.figures
    if figures is None:
        return True, True, 0.0, row.entry
    return False, not figures.wrong, -figures.gain, row.entry
