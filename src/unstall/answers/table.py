"""`TableAnswer`: what a profiler's table of the times of operators says, with methods to show and save it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from unstall.diagnose.profiler_table import TableResult, explain_table
from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.read.profiler_table import read_profiler_table
from unstall.report.profiler_table import document


@dataclass(frozen=True, repr=False, slots=True)
class TableAnswer(Shown):
    """What a profiler's table of the times of operators says about its run. `print` shows it.
    `save` writes it to a file as .html, .json, .md or .txt.
    """

    result: TableResult

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns what the table says as a document. If `scrub_paths` is set, the path of the
        table's file is shortened to its name.
        """
        path = Path(self.result.path).name if scrub_paths else self.result.path
        return document(msgspec.structs.replace(self.result, path=path))


def table_answer(file: Path, name: str) -> TableAnswer:
    """Returns what a profiler's table of the times of operators says about its run.

    Args:
        file: The file with the table.
        name: The name of the file in the report.

    Raises:
        TraceError: The table cannot be read.
    """
    return TableAnswer(msgspec.structs.replace(explain_table(read_profiler_table(file)), path=name))
