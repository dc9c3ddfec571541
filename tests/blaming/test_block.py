"""A block of `unstall.blame()` that cannot begin leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import unstall
from unstall.blaming import in_process
from unstall.errors import UnstallError


@pytest.mark.parametrize("fails", ["start", "begin_block"])
def test_a_block_that_cannot_begin_leaves_no_folder(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []

    def fail(*_: object, **__: object) -> None:
        raise UnstallError("not here")

    def made() -> Path:
        (tmp_path / "folder").mkdir()
        return tmp_path / "folder"

    monkeypatch.setattr(in_process, "make_folder", made)
    monkeypatch.setattr(in_process, "start", lambda *_, **__: lambda: stopped.append("stopped"))
    monkeypatch.setattr(in_process, fails, fail)
    with pytest.raises(UnstallError, match="not here"):
        unstall.blame().__enter__()
    assert not list(tmp_path.iterdir())
    assert stopped == (["stopped"] if fails == "begin_block" else [])
