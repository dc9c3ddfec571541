"""Each batch is ready when the program asks for it: workers or a thread load ahead, and keep up."""

from __future__ import annotations

import math

from unstall.locate.kinds import is_data_loading
from unstall.what_if.edits.input_speed import loading_faster
from unstall.what_if.place import EditPlace, parse_line
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> EditPlace | None:
    return parse_line(text) if text is not None else None


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Removes the DataLoader's time, and that of threads that only get its batches."""
    loading = is_data_loading(subject.timeline) & subject.host_rows(place)
    if not loading.any():
        return subject
    note = "a batch must then be ready whenever it is asked for: this is the most that loading ahead can gain"
    made = loading_faster(subject, loading, math.inf)
    return made.with_program(made.program, note)
