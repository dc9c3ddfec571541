"""Renders the checks that a document reports as SARIF 2.1.0, for code scanning.

Each check becomes a rule of SARIF. Each source line at which a check failed becomes a result of
SARIF.

Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from unstall.document.document import Annotation, Case, Document
from unstall.document.json import encode
from unstall.document.plain import plain

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "%SRCROOT%"
_OF_NO_FILE = "pyproject.toml"
"""The file to name for a result of SARIF whose file is unknown. GitHub refuses the whole SARIF log
if a result names no file.
"""


def render(document: Document, *, top: int | None = None) -> str:
    """Returns the checks that a document reports as a SARIF log, which has one run. `top` has no effect."""
    cases = document.cases
    failed = [(number, case) for number, case in enumerate(cases) if case.state == "exceeded"]
    run = {
        "tool": {"driver": {"name": document.title, "rules": [_rule(case) for case in cases]}},
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository."}}},
        "invocations": [
            {
                "executionSuccessful": not any(case.state == "unknown" for case in cases),
                "toolExecutionNotifications": [_notification(case) for case in cases if case.state == "unknown"],
            }
        ],
        "results": [result for number, case in failed for result in _results(number, case)],
    }
    return encode({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(case: Case) -> dict[str, Any]:
    return {
        "id": case.key,
        "name": "".join(word.capitalize() for word in case.key.split("-")),
        "shortDescription": {"text": case.name},
        "defaultConfiguration": {"level": "error"},
    }


def _notification(case: Case) -> dict[str, Any]:
    return {"level": "error", "message": {"text": plain(case.text)}, "associatedRule": {"id": case.key}}


def _results(number: int, case: Case) -> Iterator[dict[str, Any]]:
    seen: Counter[str] = Counter()
    for each in case.at:
        key = "\n".join((case.key, each.file or "", each.identity))
        seen[key] += 1
        yield {
            "ruleId": case.key,
            "ruleIndex": number,
            "level": "error",
            "message": {"text": plain(f"{case.text}. {each.text}" if each.text != case.text else case.text)},
            "locations": [{"physicalLocation": _location(each)}],
            "partialFingerprints": {"unstallCheck/v1": _digest(f"{key}\n{seen[key]}")},
        }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def _location(at: Annotation) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": _artifact(at.file or _OF_NO_FILE)}
    if at.file and at.line is not None and at.line > 0:
        location["region"] = {"startLine": at.line}
    return location


def _artifact(file: str) -> dict[str, str]:
    """Returns the location of a file. An absolute path stays absolute. Any other path is relative to the repository's
    root."""
    for path in (PurePosixPath(file), PureWindowsPath(file)):
        if path.is_absolute():
            return {"uri": f"file:///{_quoted(path.as_posix().lstrip('/'))}"}
    return {"uri": _quoted(file.replace("\\", "/")), "uriBaseId": _ROOT}


def _quoted(path: str) -> str:
    return quote(path.encode(errors="replace"))
