"""The result as GitHub-flavoured Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from unstall.figures import duration, share
from unstall.report.wording import (
    HARMLESS,
    INTEGRITY,
    UNSOUND,
    WRONG,
    aside,
    costly,
    device_rows,
    footnote,
    gain_of,
    harmless,
    has_device_work,
    operator,
    over,
    parts,
    per_step,
    place,
    plain,
    plan_rows,
    rate,
    run_lines,
    said,
    same_advice,
    short,
    source_line,
    wrong,
)
from unstall.result import Finding, Result, Where

_TOP = 10
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&$]")
_LEADING = re.compile(r"^(\d*)([.)](?=\s|$)|[#+=-])")  # what would make a line a heading, a list or a rule


def render(result: Result, *, top: int | None = None) -> str:
    """Verdict, accounts, findings, lines, notes. Names from the trace stand in code spans."""
    top = _TOP if top is None else top
    sound = result.integrity.ok
    sections = [
        f"### unstall\n\n**{escape(result.verdict.text)}**",
        "" if sound else _notes(result),
        _wrong(result, top),
        _about(result),
        _accounts(result),
        _devices(result),
        _findings(result, top) if has_device_work(result) else "",
        _plan(result),
        _harmless(result, top),
        _lines(result, top),
        _notes(result) if sound else "",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _about(result: Result) -> str:
    lines = f"{code(result.source.path)} · {escape(source_line(result))}", *map(escape, run_lines(result))
    return "  \n".join(lines)


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
    known = [code(place(where)), code(operator(where))]
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
    return _table(("device", over(result), "share"), rows, "<>>") if rows and has_device_work(result) else ""


def _devices(result: Result) -> str:
    rows = [(escape(name), busy, idle) for name, busy, idle in device_rows(result)]
    return _table(("device", "busy", "idle"), rows, "<><") if rows else ""


def _findings(result: Result, top: int) -> str:
    findings = costly(result)
    if not findings:
        return "No finding that costs anything."
    blocks = [f"#### Findings, {over(result)}"]
    for number, (finding, same) in enumerate(zip(findings[:top], same_advice(findings), strict=False), 1):
        figures = f"exposed **{duration(finding.exposed_ns)}**, host waits **{duration(finding.wait_ns)}**"
        if gain := gain_of(result, finding):
            figures = f"gain **{gain}**, {figures}"
        blocks.append(_numbered(result, number, finding, same, f": {figures}"))
    if len(findings) > top:
        blocks.append(f"… and {len(findings) - top:,} more.")
    blocks.append(f"<sub>{footnote(result)}</sub>")
    return "\n\n".join(blocks)


def _wrong(result: Result, top: int) -> str:
    findings = wrong(result)
    if not findings:
        return ""
    blocks = [f"#### {WRONG}"]
    for number, (finding, same) in enumerate(zip(findings[:top], same_advice(findings), strict=False), 1):
        blocks.append(_numbered(result, number, finding, same, ""))
    if len(findings) > top:
        blocks.append(f"… and {len(findings) - top:,} more.")
    return "\n\n".join(blocks)


def _numbered(result: Result, number: int, finding: Finding, same: int | None, figures: str) -> str:
    """One finding; `same` is the number of the one whose advice is this one's too."""
    lines = [f"{number}. **{escape(finding.title)}**{_aside(result, finding)}{figures}", _origin(finding.where)]
    advice = (("Do", finding.fix), ("Safe if", finding.safe_if)) if same is None else (("Do", f"as in {same}"),)
    for label, text in (("Saw", finding.saw), *advice):
        if said(text):
            lines.append(f"*{label}:* {escape(text)}")
    return "  \n   ".join(lines)


def _aside(result: Result, finding: Finding) -> str:
    beside = aside(result, finding)
    return f" ({beside})" if beside else ""


def _plan(result: Result) -> str:
    rows = [
        (
            _cell("  ".join([escape(row.what), *([code(row.where)] if row.where else []), *map(escape, row.notes)])),
            row.step,
            row.gain,
        )
        for row in plan_rows(result)
    ]
    return _table(("Plan: the changes in the order to make them", "a step takes", "gain"), rows, "<>>") if rows else ""


def _harmless(result: Result, top: int) -> str:
    findings = harmless(result)
    if not findings:
        return ""
    rows = [
        f"- {escape(finding.title)}{_aside(result, finding)}: exposed {duration(finding.exposed_ns)}, "
        f"host waits {duration(finding.wait_ns)}; {_origin(finding.where)}"
        for finding in findings[:top]
    ]
    if len(findings) > top:
        rows.append(f"- … and {len(findings) - top:,} more")
    summary = f"<summary>{HARMLESS}: {len(findings):,}</summary>"
    return "\n\n".join(["<details>" + summary, "\n".join(rows), "</details>"])


def _lines(result: Result, top: int) -> str:
    lines = result.lines
    if not lines:
        return ""
    rows = [
        (
            _cell(_origin(msgspec.structs.replace(line.where, called_from=None))),
            rate(result, line.launches),
            duration(line.device_ns),
            duration(line.idle_ns) + (f" {escape(line.idle_cause)}" if line.idle_cause else ""),
            duration(line.wait_ns),
        )
        for line in lines[:top]
    ]
    table = _table(("line", "launches", "device", "device idle", "host waits"), rows, "<>>>>")
    summary = f"<details><summary>Cost by line, {over(result)}: {min(top, len(lines)):,} of {len(lines):,}</summary>"
    return "\n\n".join([summary, table, "</details>"])


def _notes(result: Result) -> str:
    if not result.integrity.notes:
        return ""
    heading = f"{INTEGRITY}:" if result.integrity.ok else f"**{INTEGRITY}: {UNSOUND}**"
    return "\n".join([heading, *(f"- {escape(note)}" for note in result.integrity.notes)])
