"""Renders the checks that a document reports as a JUnit report, with one test case for each check.

A check that could not be made is reported as an error.

Format: https://github.com/testmoapp/junitxml
"""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from unstall.document.document import Case, Document
from unstall.document.plain import plain


def render(document: Document, *, top: int | None = None) -> str:
    """Returns the checks that a document reports as one JUnit suite. `top` has no effect."""
    states = [case.state for case in document.cases]
    counts = {
        "tests": f"{len(states)}",
        "failures": f"{states.count('exceeded')}",
        "errors": f"{states.count('unknown')}",
        "skipped": "0",
        "time": "0",
    }
    suites = Xml.Element("testsuites", {"name": document.title, **counts})
    suite = Xml.SubElement(suites, "testsuite", {"name": document.title, **counts})
    for case in document.cases:
        _add(suite, document.title, case)
    Xml.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{Xml.tostring(suites, encoding="unicode")}\n'


def _add(suite: Xml.Element, title: str, case: Case) -> None:
    first = next((each for each in case.at if each.file), None)
    place = {"file": _text(first.file or "")} if first else {}
    if first and first.line is not None and first.line > 0:
        place["line"] = f"{first.line}"
    made = Xml.SubElement(
        suite, "testcase", {"classname": title.replace(" ", "."), "name": _text(case.name), "time": "0", **place}
    )
    if case.state == "held":
        Xml.SubElement(made, "system-out").text = _text(case.text)
        return
    kind = "failure" if case.state == "exceeded" else "error"
    failed = Xml.SubElement(made, kind, {"message": _text(case.text), "type": case.key})
    failed.text = "\n".join(_text(each.text) for each in case.at)


def _text(text: str) -> str:
    """Returns the text without characters that XML forbids."""
    return plain(text).encode(errors="replace").decode()
