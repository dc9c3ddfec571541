"""What a container allows: the least of what its control group and the groups around it do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unstall.fleets import machine

MIB = 1 << 20


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this process's control group, `job/rank`, in which nothing is limited yet."""
    own = tmp_path / "cgroup"
    own.write_text("1:name=systemd:/\n0::/job/rank\n")
    monkeypatch.setattr(machine, "_OWN_GROUP", own)
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    folder = tmp_path / "job" / "rank"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text("max\n")
    (folder / "cpu.max").write_text("max 100000\n")
    for each in (folder, folder.parent):
        (each / "memory.stat").write_text(f"anon {20 * MIB}\ninactive_file {MIB}\n")
    return folder


def test_a_group_without_limits_allows_what_the_machine_has(group: Path) -> None:
    assert machine.processors() == len(os.sched_getaffinity(0))
    assert machine.available_bytes() > 64 * MIB


def test_the_least_of_all_groups_counts(group: Path) -> None:
    for folder, most in ((group, 64 * MIB), (group.parent, 48 * MIB)):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{40 * MIB}\n")
    (group.parent / "cpu.max").write_text("150000 100000\n")
    assert (machine.processors(), machine.available_bytes()) == (1, 9 * MIB)  # files in memory give way


def test_a_group_that_uses_more_than_it_may_has_nothing_left(group: Path) -> None:
    (group / "memory.max").write_text("1\n")
    (group / "memory.current").write_text(f"{2 * MIB}\n")
    (group / "cpu.max").write_text("1000 100000\n")
    assert (machine.processors(), machine.available_bytes()) == (1, 0)
