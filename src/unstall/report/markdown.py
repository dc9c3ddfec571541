"""The result as GitHub-flavoured Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from unstall.figures import duration, share
from unstall.report.wording import (
    EXPOSED,
    costly,
    device_rows,
    harmless,
    often,
    parts,
    per_step,
    place,
    plain,
    said,
    short,
    source_line,
    steps_line,
)
from unstall.result import Finding, LineCost, Result, Where

_TOP = 10
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&$]")
_LEADING = re.compile(r"^(\d*)([.)](?=\s|$)|[#+=-])")  # what would make a line a heading, a list or a rule


def render(result: Result, *, top: int | None = None) -> str:
    """Verdict, accounts, findings, lines, notes. Names from the trace stand in code spans."""
    top = _TOP if top is None else top
    sections = [
        f"### unstall\n\n**{escape(result.verdict.text)}**",
        f"{code(result.source.path)} · {escape(source_line(result))}  \n{escape(steps_line(result))}",
        _accounts(result),
        _devices(result),
        _findings(costly(result), top),
        _harmless(harmless(result), top),
        _lines(result.lines, top),
        _notes(result),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(text: str) -> str:
    """Free text that Markdown shows as it is: no markup, no HTML, no links, nobody mentioned."""
    text = _SPECIAL.sub(r"\\\g<0>", plain(text).strip())
    text = _LEADING.sub(r"\1\\\2", text)
    text = text.replace("://", "&#58;//").replace("www.", "www&#46;")
    return text.replace("@", "@<!-- -->")


def code(text: str) -> str:
    """A code span; nothing for no text."""
    text = short(text).strip()
    if not text:
        return ""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _origin(where: Where) -> str:
    known = [code(place(where)), code(where.op or "")]
    if where.called_from:
        known.append(f"called from {code(place(where.called_from))}")
    return " · ".join(part for part in known if part) or "no source line known"


def _cell(text: str) -> str:
    """Markdown for a table's cell, where a bar would end the cell even inside code."""
    return text.replace("|", "\\|")


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], align: str) -> str:
    """`align` has `<` or `>` for each column. Cells are Markdown already."""
    rule = tuple("---" if side == "<" else "--:" for side in align)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def _accounts(result: Result) -> str:
    rows = [
        (part.label, duration(per_step(result, part.ns)), share(part.ns, result.accounts.wall_ns))
        for part in parts(result.accounts)
    ]
    return _table(("device", "per step", "share"), rows, "<>>") if rows else ""


def _devices(result: Result) -> str:
    rows = [(escape(name), busy, idle) for name, busy, idle in device_rows(result)]
    return _table(("device", "busy", "idle"), rows, "<><") if rows else ""


def _findings(findings: list[Finding], top: int) -> str:
    if not findings:
        return "No finding that costs anything."
    blocks = ["#### Findings"]
    for number, finding in enumerate(findings[:top], 1):
        figures = f"exposed **{duration(finding.exposed_ns)}**, host waits **{duration(finding.wait_ns)}**"
        if finding.gain_ns is not None:
            figures = f"gain **{duration(finding.gain_ns)}**, {figures}"
        lines = [f"{number}. **{escape(finding.title)}**{often(finding)}; per step: {figures}", _origin(finding.where)]
        for label, text in (("Saw", finding.saw), ("Do", finding.fix), ("Safe if", finding.safe_if)):
            if said(text):
                lines.append(f"*{label}:* {escape(text)}")
        blocks.append("  \n   ".join(lines))
    if len(findings) > top:
        blocks.append(f"… and {len(findings) - top:,} more.")
    blocks.append(f"<sub>{EXPOSED}</sub>")
    return "\n\n".join(blocks)


def _harmless(findings: list[Finding], top: int) -> str:
    if not findings:
        return ""
    rows = [
        f"- {escape(finding.title)}{often(finding)}: host waits {duration(finding.wait_ns)}, "
        f"exposed {duration(finding.exposed_ns)}; {_origin(finding.where)}"
        for finding in findings[:top]
    ]
    if len(findings) > top:
        rows.append(f"- … and {len(findings) - top:,} more")
    summary = f"<summary>Costing nothing: {len(findings):,}</summary>"
    return "\n\n".join(["<details>" + summary, "\n".join(rows), "</details>"])


def _lines(lines: tuple[LineCost, ...], top: int) -> str:
    if not lines:
        return ""
    rows = [
        (
            _cell(_origin(msgspec.structs.replace(line.where, called_from=None))),
            f"{line.launches:,}",
            duration(line.device_ns),
            duration(line.wait_ns),
            duration(line.idle_ns) + (f" {escape(line.idle_cause)}" if line.idle_cause else ""),
        )
        for line in lines[:top]
    ]
    table = _table(("line", "launches", "device", "host waits", "device idle"), rows, "<>>>>")
    summary = f"<details><summary>Cost by line, per step: {min(top, len(lines)):,} of {len(lines):,}</summary>"
    return "\n\n".join([summary, table, "</details>"])


def _notes(result: Result) -> str:
    if not result.integrity.notes:
        return ""
    heading = "Notes on the data:" if result.integrity.ok else "**The data is not sound:**"
    return "\n".join([heading, *(f"- {escape(note)}" for note in result.integrity.notes)])
