"""`Report`: the result of `explain` for users, and how to read a saved result."""

from __future__ import annotations

from pathlib import Path

import msgspec

from unstall.diagnose.explain import Diagnosis
from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.errors import TraceError
from unstall.report.editor import with_links
from unstall.report.explain import document
from unstall.report.pictures import pictures_of
from unstall.report.scrub import files_of, paths_of, scrub, scrubber
from unstall.result import SCHEMA, Result

MAX_BYTES = 256 << 20


class Report(Shown, Diagnosis):
    """The result of `explain`. `print` shows it, and `save` writes it in the format of a file's ending."""

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the document of the report."""
        result, runs = self.result, () if self.run is None else (self.run,)

        def files() -> set[str]:
            return {file for run in runs for file in files_of(run.timeline)} | paths_of(result)

        if not scrub_paths:
            return with_links(document(result, pictures_of(runs)), files)
        return document(scrub(result, files()), pictures_of(runs, scrubber(result, files())))


class _Schema(msgspec.Struct):
    schema: str


def read_result(path: str | Path) -> Result:
    """Read a result that a report saved as JSON. Raises TraceError for anything else."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise TraceError(f"{path}: larger than {MAX_BYTES >> 20} MiB, so no result of `unstall explain --json`")
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema == SCHEMA:
            return msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(
            f"{path}: not a result that `unstall explain TRACE -o result.json` wrote: {error}. "
            "A trace is explained with `unstall explain`"
        ) from error
    raise TraceError(f"{path}: its schema is {schema!r}, and this version of unstall reads {SCHEMA!r}")
