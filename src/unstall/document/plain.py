"""Makes names from a trace or a program safe: one printable line."""

from __future__ import annotations

_LONGEST_NAME = 160  # templated kernel names run to thousands of characters


def plain(text: str) -> str:
    """Returns `text` in one line, without control characters, bidi overrides and other invisible characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)


def short(text: str, longest: int = _LONGEST_NAME) -> str:
    """Returns `plain(text)`. If the text is too long, its middle is left out."""
    text = plain(text)
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"
