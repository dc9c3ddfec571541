"""Why an entry failed, in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.auditing.reason import reason_of

_FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    fails()\n'


@pytest.mark.parametrize(
    ("code", "log", "reason"),
    [
        (1, f"epoch 1\n{_FRAMES}ValueError: no such thing\nand more of it\n", "ValueError: no such thing"),
        (1, f"{_FRAMES}ImportError: \nscipy is missing\n", "ImportError: scipy is missing"),
        (
            1,
            f"{_FRAMES}KeyError: 1\n\nDuring handling of the above exception:\n\n{_FRAMES}ValueError: 2\n",
            "ValueError: 2",
        ),
        (1, f"{_FRAMES}KeyError: 1\nunstall: nothing ran on the virtual GPU before the program ended\n", "KeyError: 1"),
        (2, "train.py: error: --epochs is missing\n\n", "train.py: error: --epochs is missing"),
        (
            0,
            "done\nunstall: nothing ran on the virtual GPU: …\nunstall: so there is no report in report.json\n",
            "nothing ran on the virtual GPU: …",
        ),
        (7, "", "exit code 7"),
        (-11, f"{_FRAMES}KeyError: 1\n", "SIGSEGV ended it"),
    ],
)
def test_the_reason_is_the_first_line_of_the_last_error(tmp_path: Path, code: int, log: str, reason: str) -> None:
    path = tmp_path / "log"
    path.write_text(log, "utf-8")
    assert reason_of(code, path) == reason


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * (3 << 20) + f"\n{_FRAMES}ValueError: at last\n")
    assert reason_of(1, path) == "ValueError: at last"
