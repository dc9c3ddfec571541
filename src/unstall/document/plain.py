"""Converts names that come from a recording or a program to one line of printable characters."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unstall.document.document import Words

_COMMAND = re.compile(r"\s*::\S")
_LONGEST_NAME = 160  # templated kernel names run to thousands of characters


def plain(text: str) -> str:
    """Returns `text` on one line, without control characters, bidi overrides and other invisible characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)


def short(text: str, longest: int = _LONGEST_NAME) -> str:
    """Returns `text` on one line, without invisible characters. If the line has more than `longest`
    characters, its middle is left out.
    """
    text = plain(text)
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"


def text_of(line: Words) -> str:
    """Returns the text of a line, without its styles."""
    return "".join(span.text for span in line)


def in_html(text: str | Words) -> str:
    """Returns `text` on one line, without invisible characters and styles, as HTML."""
    return html.escape(plain(text if isinstance(text, str) else text_of(text)))


def no_command(line: str) -> str:
    """Returns a line of text in a form that continuous integration does not run as a command. A
    space is inserted if that is necessary.

    A name that comes from a recording must not run commands. GitHub Actions and Azure Pipelines
    obey lines that begin with `::`, or that contain `##[` or `##vso[`.
    """
    if _COMMAND.match(line):
        line = line.replace("::", ": :", 1)
    return line.replace("##", "# #") if "##[" in line or "##vso[" in line else line
