"""How many examples a law is tried with: hypothesis' profiles, and settings that follow the one in use."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

_THOROUGH = 100  # of a law that asks for no number


def load() -> None:
    """Registers `thorough` and `fast`, and loads that. `--hypothesis-profile` loads the other.

    `fast` tries a third, and the same ones in each run, so that a run that fails tells of what was changed. `thorough`
    draws new ones in each run, in CI too, where hypothesis would draw the same. How long an example takes, or how long
    it takes to draw, is not what a test is about.
    """
    thorough = settings(
        settings.get_profile("default"),
        max_examples=_THOROUGH,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=False,
        print_blob=True,
    )
    settings.register_profile("thorough", thorough)
    settings.register_profile("fast", thorough, max_examples=_THOROUGH // 3, derandomize=True, database=None)
    settings.load_profile("fast")


def examples(thorough: int, **others: Any) -> settings:
    """The settings of a law that the profile `thorough` tries with so many examples, and others with their share."""
    return settings(max_examples=max(1, thorough * settings().max_examples // _THOROUGH), **others)
