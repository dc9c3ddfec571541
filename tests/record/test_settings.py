"""Laws of a recording's settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.record.settings import Settings

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
