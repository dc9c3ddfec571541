"""The findings as GitHub workflow commands, shown beside the lines of a pull request.

Syntax: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from unstall.figures import duration
from unstall.report.wording import costly, origin, over, plain, run_lines, wrong
from unstall.result import Finding, Result

_TOP = 10  # GitHub shows ten annotations of a kind for each step of a workflow


def render(result: Result, *, top: int | None = None) -> str:
    """The verdict as a notice, an error for each bug, then a warning for each finding that costs something."""
    most = _TOP if top is None else top
    about = [f"simulated for {result.source.device}"] if result.source.simulated else []
    about += run_lines(result)
    commands = [_command("notice", f"{result.verdict.text} ({'; '.join(about)})", title="unstall")]
    commands += [_annotation("error", finding, "what is computed may be wrong") for finding in wrong(result)[:most]]
    for finding in costly(result)[:most]:
        cost = f"it costs the device {duration(finding.exposed_ns)} {over(result)}"
        commands.append(_annotation("warning", finding, f"{cost}, and the host waits {duration(finding.wait_ns)}"))
    return "".join(f"{command}\n" for command in commands)


def _annotation(level: str, finding: Finding, what: str) -> str:
    where = finding.where
    message = f"{origin(where)}: {what}. Saw: {finding.saw}. Do: {finding.fix}"
    properties = {"title": f"unstall: {finding.title}"}
    if where.file:
        properties["file"] = where.file
        if where.line is not None and where.line > 0:
            properties["line"] = str(where.line)
    return _command(level, message, **properties)


def _command(name: str, message: str, **properties: str) -> str:
    pairs = ",".join(f"{key}={_property(value)}" for key, value in sorted(properties.items()))
    return f"::{name} {pairs}::{_data(message)}"


def _data(text: str) -> str:
    return plain(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
