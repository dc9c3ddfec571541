"""How many examples a law is tried with: hypothesis' profiles, and settings that follow the one in use."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

_THOROUGH = 100  # of a law that asks for no number


def load() -> None:
    """Registers `thorough` and `fast`, which tries a third, and loads that. `--hypothesis-profile` loads the other.

    How long an example takes, or how long it takes to draw, is not what a test is about. Every run draws new examples,
    in CI too, where hypothesis would draw the same each time.
    """
    thorough = settings(
        settings.get_profile("default"),
        max_examples=_THOROUGH,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
    settings.register_profile("thorough", thorough)
    settings.register_profile("fast", thorough, max_examples=_THOROUGH // 3)
    settings.load_profile("fast")


def examples(thorough: int, **others: Any) -> settings:
    """The settings of a law that the profile `thorough` tries with so many examples, and others with their share."""
    return settings(max_examples=max(1, thorough * settings().max_examples // _THOROUGH), **others)
