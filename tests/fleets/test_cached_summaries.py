"""The summaries of ranks in the user's cache: at most 2 GiB of them are kept, whatever else is in the folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from unstall.fleets.fleet import explain_fleet

TRACE = Path(__file__).parents[2] / "examples" / "traces" / "decode_item.json.gz"


def test_the_oldest_summaries_go_though_a_file_vanishes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to nothing stands for a summary that another thread has renamed since the folder was listed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "unstall" / "ranks"
    cache.mkdir(parents=True)
    (cache / "vanished.rank").symlink_to(tmp_path / "nothing")
    old = cache / "old.rank"
    with old.open("wb") as file:
        file.truncate(3 << 30)  # takes no space
    os.utime(old, (0, 0))
    explain_fleet(shutil.copy(TRACE, tmp_path / "rank-0.json.gz"))
    assert not old.exists()
    assert len(list(cache.iterdir())) == 2  # the link, and what was explained


def test_a_moved_trace_is_not_read_again_unless_its_name_tells_another_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def explained(name: str) -> tuple[str, int, int]:
        (path := tmp_path / name).parent.mkdir(exist_ok=True)
        (rank,) = explain_fleet(shutil.copy(TRACE, path)).ranks
        assert rank.path == str(path)
        return Path(rank.path).name, rank.rank, len(list((tmp_path / "unstall" / "ranks").iterdir()))

    assert explained("there/rank-0.json.gz") == ("rank-0.json.gz", 0, 1)
    assert explained("here/rank-0.json.gz") == ("rank-0.json.gz", 0, 1)
    assert explained("here/rank-1.json.gz") == ("rank-1.json.gz", 1, 2)
