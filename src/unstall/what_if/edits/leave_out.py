"""A function is left out: its launches, its waits, and the host's work in its operators."""

from __future__ import annotations

from unstall.errors import UsageError
from unstall.timeline.columns import HostKind
from unstall.what_if.place import EditPlace, parse_function
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> EditPlace:
    if text is None:
        raise UsageError("write leave-out:FILE:FUNCTION: everything cannot be left out")
    return parse_function(text)


def apply(subject: Subject, place: EditPlace) -> Subject:
    chosen = subject.host_rows(place) & (subject.timeline.host.kind <= HostKind.CALL)
    return subject.with_program(subject.cut(chosen))
