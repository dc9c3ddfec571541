"""Data loading is K times as fast: the DataLoader, and threads that only get its batches."""

from __future__ import annotations

import numpy as np

from unstall.locate.kinds import is_data_loading
from unstall.locate.threads import feeding_threads
from unstall.timeline.columns import Bool
from unstall.what_if.edits.host_speed import parse_factor
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> float:
    return parse_factor("input-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    return loading_faster(subject, is_data_loading(subject.timeline), factor)


def loading_faster(subject: Subject, loading: Bool, factor: float) -> Subject:
    """Returns the run with data loading `factor` times as fast.

    `loading` is a mask of `timeline.host`: the events that load data. All work of threads that do
    nothing but get batches becomes faster, too.
    """
    timeline, do = subject.timeline, subject.program.instructions
    feeding = np.isin(do.thread, subject.program.thread_of[feeding_threads(timeline, np.flatnonzero(loading))])
    work, call = subject.share_of_work(loading), subject.share_of_call(loading)
    return subject.faster(factor, np.where(feeding, 1.0, work), np.where(feeding, 1.0, call))
