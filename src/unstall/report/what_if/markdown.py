"""The answer as Markdown, for a pull request."""

from __future__ import annotations

from unstall.report.markdown import escape
from unstall.report.what_if.wording import conclusion, rows
from unstall.report.wording import run_lines, source_line
from unstall.result import WhatIf


def render(result: WhatIf) -> str:
    """A sentence and a table."""
    lines = [
        f"### What if: {escape(result.source.path)}",
        "",
        escape(" · ".join((source_line(result), *run_lines(result)))),
        "",
        f"**{escape(conclusion(result))}**",
        "",
        "| a step | takes | gain | |",
        "|---|---:|---:|---|",
        *(
            f"| {escape(what)} | {takes} | {gain} | {escape('; '.join(remarks))} |"
            for what, takes, gain, remarks in rows(result)
        ),
    ]
    said = [*(f"inferred: {text}" for text in result.inferred), *result.integrity.notes]
    if said:
        lines += ["", *(f"- {escape(text)}" for text in said)]
    return "\n".join(lines) + "\n"
