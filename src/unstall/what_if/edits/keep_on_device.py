"""Bytes that were copied to the device before are not copied again: the tensor stays there."""

from __future__ import annotations

import numpy as np

from unstall.locate.kinds import OF_THE_DRIVER
from unstall.timeline.columns import I64, Uploads
from unstall.what_if.place import EditPlace
from unstall.what_if.subject import Subject


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run without uploads of bytes that were uploaded before, without their operators,
    and without the waits for them.

    Calls of the driver within these operators stay, such as an allocation. `place` is the line of
    the uploads; None for all.
    """
    uploads = subject.timeline.uploads
    if not uploads.content.any():
        return subject.with_program(subject.program, "the file does not say which copies have the same bytes")
    rows = uploads.call[repeated(uploads)]
    rows = rows[subject.host_rows(place)[rows]]
    gone = np.zeros(len(subject.timeline.host), dtype=np.bool_)
    gone[rows] = True
    operation = subject.places.operation[rows]
    gone[operation[operation >= 0]] = True
    spare = np.isin(subject.timeline.host.kind, OF_THE_DRIVER)
    return subject.with_program(subject.cut(gone, spare=spare))


def repeated(uploads: Uploads) -> I64:
    """Returns the rows of the uploads whose bytes are the same as those of an earlier upload in the table."""
    known = np.flatnonzero(uploads.content > 0)
    _, first = np.unique(uploads.content[known], return_index=True)
    rows: I64 = np.delete(known, first)
    return rows
