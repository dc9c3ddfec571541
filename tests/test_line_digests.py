"""Digests of source lines: the same for the same text, and none for what may not be what ran."""

from __future__ import annotations

import os
import time
from pathlib import Path

from unstall.line_digests import MOST_BYTES, UNKNOWN, LineDigests

_SOURCE = "x = f()\n    x = f()\ny = f()\n\n"


def _digests(folder: Path, *, began_s: float | None = None) -> LineDigests:
    (folder / "train.py").write_text(_SOURCE)
    return LineDigests(str(folder), time.time() + 60 if began_s is None else began_s)


def test_lines_of_the_same_text_have_the_same_digest_whatever_their_indentation(tmp_path: Path) -> None:
    digest = _digests(tmp_path)
    assert digest("train.py", 1) == digest("train.py", 2) == digest(str(tmp_path / "train.py"), 1)
    assert digest("train.py", 1) != digest("train.py", 3)
    assert 0 <= digest("train.py", 1) < 2**53


def test_an_empty_line_and_one_beyond_the_file_have_none(tmp_path: Path) -> None:
    digest = _digests(tmp_path)
    assert [digest("train.py", line) for line in (-1, 0, 4, 99)] == [UNKNOWN] * 4


def test_a_file_that_was_changed_after_the_program_began_has_none(tmp_path: Path) -> None:
    assert _digests(tmp_path, began_s=time.time() - 60)("train.py", 1) == UNKNOWN


def test_a_line_of_a_framework_has_none(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "nn.py").write_text(_SOURCE)
    assert _digests(tmp_path)("torch/nn.py", 1) == UNKNOWN


def test_no_file_a_pipe_and_a_large_file_have_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "large.py").write_text("x = 1\n" * (MOST_BYTES // 6 + 1))
    digest = _digests(tmp_path)
    assert [digest(name, 1) for name in ("none.py", "pipe.py", "large.py", "\0.py", "In[3]")] == [UNKNOWN] * 5
