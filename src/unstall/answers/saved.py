"""Reads results of commands that were saved as JSON, so that they can be shown again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from unstall.answers.audit import Audited
from unstall.answers.decoded import decoded
from unstall.answers.fleet import Fleet
from unstall.answers.report import Report
from unstall.auditing.result import SCHEMA as AUDIT
from unstall.auditing.result import Audit
from unstall.fleets.result import SCHEMA as FLEET
from unstall.fleets.result import FleetResult
from unstall.result import SCHEMA as RESULT
from unstall.result import Result

_TYPES: dict[str, type[msgspec.Struct]] = {RESULT: Result, AUDIT: Audit, FLEET: FleetResult}


def read_saved(path: str | Path) -> Report | Audited | Fleet:
    """Reads a result that was saved as .json: of `explain`, of `unstall audit`, or of `fleet`.

    Raises:
        TraceError: The file is not such a result.
    """
    saved: Result | Audit | FleetResult = decoded(path, _TYPES)
    if isinstance(saved, FleetResult):
        return Fleet(saved)
    return Audited(saved) if isinstance(saved, Audit) else Report(saved, None)
