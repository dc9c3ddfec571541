"""The comparison as GitHub-flavoured Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from unstall.diff.result import DiffResult, Side
from unstall.diff.wording import (
    NOISE,
    Row,
    Section,
    label,
    launch_rows,
    run_line,
    sections,
    signed,
    steps_line,
    unchanged,
)
from unstall.figures import duration
from unstall.report.markdown import code, escape

_TOP = 10


def render(result: DiffResult, *, top: int | None = None) -> str:
    """Runs, caveats, summary, accounts, changes. Names from the trace stand in code spans."""
    top = _TOP if top is None else top
    blocks = [
        f"### unstall diff\n\n**{escape(result.summary.text)}**",
        f"{_run('A', result.a)}  \n{_run('B', result.b)}",
        "\n".join(f"- {escape(caveat.text)}" for caveat in result.caveats),
        _accounts(result),
        _launches(result),
        *(_section(section, top) for section in sections(result)),
        _foot(result),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _run(name: str, side: Side) -> str:
    about = " · ".join(part for part in (run_line(side), steps_line(side)) if part)
    return f"{name}: {code(side.source.path)} · {escape(about)}"


def _accounts(result: DiffResult) -> str:
    if not result.accounts or result.empty:
        return ""
    rows = [
        (label(account), duration(time.a), duration(time.b), signed(time.change))
        for account in result.accounts
        for time in (account.time_ns,)
    ]
    if result.step_ns is not None:
        step = result.step_ns
        rows.append(("**step**", duration(step.a), duration(step.b), f"**{signed(step.change)}**"))
    return _table(("where a step goes", "A", "B", "change"), rows)


def _launches(result: DiffResult) -> str:
    rows = launch_rows(result)
    return _table(("launches, per step", "A", "B"), rows) if rows else ""


def _section(section: Section, top: int) -> str:
    shown = section.rows[:top]
    rows = [(_cell(code(row.title)), _how(row), *row.figures) for row in shown]
    table = _table((section.heading.lower(), "", *section.columns), rows)
    heading = f"<details open><summary>{section.heading}: {len(shown):,} of {len(section.rows):,}</summary>"
    return "\n\n".join([heading, table, "</details>"])


def _how(row: Row) -> str:
    return ": ".join(part for part in (row.status, escape(row.detail)) if part)


def _foot(result: DiffResult) -> str:
    if result.empty:
        return ""
    lines = unchanged(result), NOISE if result.step_ns and result.step_ns.noise else ""
    return "  \n".join(f"<sub>{line}</sub>" for line in lines if line)


def _cell(text: str) -> str:
    """Markdown for a table's cell, where a bar would end the cell even inside code."""
    return text.replace("|", "\\|")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text first, figures after it. Cells are Markdown already."""
    first = next((i for i, name in enumerate(header) if i and name), 1)
    rule = ["---" if i < first else "--:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))
