"""Laws of a recording's settings."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.errors import UsageError
from unstall.recording.settings import Settings, check_choices

_SECONDS = st.none() | st.floats(0, 1e6)
_SETTINGS = st.builds(
    Settings,
    folder=st.text(),
    recorder=st.sampled_from(["auto", "cupti", "torch"]),
    warmup=st.integers(0, 10**6),
    steps=st.integers(1, 10**6),
    after_s=_SECONDS,
    for_s=_SECONDS,
    lines=st.sampled_from(["auto", "monitoring", "settrace", "none"]),
    shapes=st.booleans(),
    keep_arguments=st.booleans(),
)


@given(_SETTINGS)
def test_settings_come_back_from_an_environment_variable(settings: Settings) -> None:
    text = settings.to_json()
    assert text.isascii()
    assert "\0" not in text
    assert Settings.from_json(text) == settings


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"folder": "f", "speed": 9}'])
def test_what_are_no_settings_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        Settings.from_json(text)


@pytest.mark.parametrize(
    ("recorder", "lines", "shapes"),
    [
        ("tpu", "auto", False),
        ("auto", "all", False),
        ("cupti", "auto", True),
        ("cupti", "none", True),
        ("auto", "calls", True),
        ("torch", "calls", False),
        ("torch", "calls", True),
    ],
)
def test_choices_that_exclude_each_other_are_refused(recorder: str, lines: str, *, shapes: bool) -> None:
    with pytest.raises(UsageError):
        check_choices(recorder, lines, shapes=shapes)


def test_monitoring_is_refused_before_python_3_12(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    check_choices("torch", "monitoring", shapes=False)
    monkeypatch.setattr(sys, "version_info", (3, 11, 9))
    with pytest.raises(UsageError, match=r"monitoring from Python 3\.12 on: take settrace"):
        check_choices("torch", "monitoring", shapes=False)


@pytest.mark.parametrize(("recorder", "lines"), [("auto", "calls"), ("cupti", "none"), ("torch", "settrace")])
def test_choices_that_may_work_are_not_refused(recorder: str, lines: str) -> None:
    check_choices(recorder, lines, shapes=False)
