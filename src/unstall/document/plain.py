"""Converts names from a trace or a program to one line of printable characters, which is safe to print."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"\s*::\S")
_LONGEST_NAME = 160  # templated kernel names run to thousands of characters


def plain(text: str) -> str:
    """Returns `text` in one line, without control characters, bidi overrides and other invisible characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)


def short(text: str, longest: int = _LONGEST_NAME) -> str:
    """Returns the text as one line of printable characters. If the line is longer than `longest`, omits the middle of
    the line."""
    text = plain(text)
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"


def no_command(line: str) -> str:
    """Returns the line in a form that continuous integration does not run as a command. Inserts a space if necessary.

    A name from a trace must not run commands. GitHub Actions and Azure Pipelines obey lines that begin with `::`, or
    that contain `##[` or `##vso[`.
    """
    if _COMMAND.match(line):
        line = line.replace("::", ": :", 1)
    return line.replace("##", "# #") if "##[" in line or "##vso[" in line else line
