"""What a timeline says of itself."""

from __future__ import annotations

from report.timelines import training_step

from unstall.read import load


def test_its_repr_is_a_line_and_not_its_strings() -> None:
    timeline = training_step()
    assert repr(timeline) == f"<Timeline of {timeline.meta.path or 'no file'}: 7 host events, 2 device ops>"


def test_a_loaded_one_names_its_file() -> None:
    shown = repr(load("examples/traces/growing.json.gz"))
    assert shown == "<Timeline of examples/traces/growing.json.gz: 392 host events, 4 device ops>"
