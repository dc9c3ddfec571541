"""The host sleeps 1/K as long, and waits 1/K as long for other processes, connections and files."""

from __future__ import annotations

from unstall.locate.kinds import is_asleep
from unstall.what_if.edits.host_speed import parse_factor
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> float:
    return parse_factor("sleep-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    rows = is_asleep(subject.timeline)
    return subject.faster(factor, subject.share_of_work(rows), subject.share_of_call(rows))
