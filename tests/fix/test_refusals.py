"""Which line is named as the reason: the user's, and the library's that it led to."""

from __future__ import annotations

from pathlib import Path

from unstall.fix.graphs.refusals import Place, calling_place


def test_a_library_that_the_line_led_to_is_named_too(tmp_path: Path) -> None:
    file = tmp_path / "site-packages" / "some_library" / "masks.py"
    names: dict[str, object] = {}
    exec(compile("def call(function):\n    return function()", str(file), "exec"), names)
    place = names["call"](calling_place)  # type: ignore[operator]
    assert place.library == "some_library/masks.py:2"
    assert place.function == "test_a_library_that_the_line_led_to_is_named_too"


def test_a_place_says_both() -> None:
    assert str(Place("/home/me/train.py", 3, "step")) == "train.py:3 (step)"
    assert str(Place("/home/me/train.py", 3, "step", "lib/a.py:2")) == "train.py:3 (step, through lib/a.py:2)"
