"""Which line is named as the reason: the user's, and the library's that it led to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unstall.virtual
from unstall.fix.graphs.examine.users_code import is_users_file
from unstall.fix.graphs.refusals import UserLine, calling_place, raising_place


def test_a_library_that_the_line_led_to_is_named_too(tmp_path: Path) -> None:
    file = tmp_path / "site-packages" / "some_library" / "masks.py"
    names: dict[str, object] = {}
    exec(compile("def call(function):\n    return function()", str(file), "exec"), names)
    place = names["call"](calling_place)  # type: ignore[operator]
    assert place.library == "some_library/masks.py:2"
    assert place.function == "test_a_library_that_the_line_led_to_is_named_too"


def test_a_place_says_both() -> None:
    assert str(UserLine("/home/me/train.py", 3, "step")) == "train.py:3 (step)"
    assert str(UserLine("/home/me/train.py", 3, "step", "lib/a.py:2")) == "train.py:3 (step, through lib/a.py:2)"


def test_of_an_error_the_line_of_the_library_that_raised_it_is_named_too(tmp_path: Path) -> None:
    file = tmp_path / "site-packages" / "some_library" / "masks.py"
    names: dict[str, Any] = {}
    exec(compile("def call():\n    return inner()\n\ndef inner():\n    return 1 / 0", str(file), "exec"), names)
    with pytest.raises(ZeroDivisionError) as raised:
        names["call"]()
    place = raising_place(raised.value)
    assert place is not None
    assert (place.library, Path(place.file).name) == ("some_library/masks.py:5", "test_refusals.py")


def test_no_file_of_this_package_is_the_users() -> None:
    assert not is_users_file(unstall.virtual.__file__)
    assert is_users_file(str(Path(unstall.__file__).parent) + "_of_mine.py")
