"""Renders the annotations of a document as GitHub workflow commands. An annotation is a message for
a source line.

GitHub shows these annotations beside the lines of a pull request.

Syntax: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections import Counter

from unstall.document.document import Annotation, Document
from unstall.document.plain import plain


def render(document: Document, *, top: int = 10) -> str:
    """Returns annotations of a document (messages for source lines) as commands for GitHub: the
    first `top` annotations of each level.

    For each step of a workflow, GitHub shows at most ten annotations of each level.
    """
    shown: Counter[str] = Counter()
    commands = []
    for annotation in document.annotations:
        shown[annotation.level] += 1
        if shown[annotation.level] <= top:
            commands.append(f"{_command(annotation)}\n")
    return "".join(commands)


def _command(annotation: Annotation) -> str:
    properties = {"title": annotation.title}
    if annotation.file:
        properties["file"] = annotation.file
        if annotation.line is not None and annotation.line > 0:
            properties["line"] = str(annotation.line)
    pairs = ",".join(f"{key}={_property(value)}" for key, value in sorted(properties.items()))
    return f"::{annotation.level} {pairs}::{_data(annotation.text)}"


def _data(text: str) -> str:
    return plain(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
