"""Reads the results and audits that commands saved as JSON, so that they can be shown again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from unstall.answers.audit import Audited
from unstall.answers.decoded import decoded
from unstall.answers.report import Report
from unstall.auditing.result import SCHEMA as AUDIT
from unstall.auditing.result import Audit
from unstall.result import SCHEMA as RESULT
from unstall.result import Result

_TYPES: dict[str, type[msgspec.Struct]] = {RESULT: Result, AUDIT: Audit}


def read_saved(path: str | Path) -> Report | Audited:
    """Reads a result or an audit that was saved as JSON. Raises TraceError if the file is neither."""
    saved: Result | Audit = decoded(path, _TYPES)
    return Audited(saved) if isinstance(saved, Audit) else Report(saved, None)
