"""Atomic writing: all of it or nothing, with the mode that anyone would expect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unstall.errors import UsageError
from unstall.files import check_targets, write_atomically, writing_atomically


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_bytes(b"old")
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "private"
    target.write_bytes(b"")
    target.chmod(0o600)
    write_atomically(target, b"x")
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_what_is_no_regular_file_is_written_straight_to() -> None:
    write_atomically(os.devnull, b"x")
    assert not Path(os.devnull).is_file()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere/report\.html: cannot be written: No such file or directory"):
        write_atomically(tmp_path / "nowhere" / "report.html", b"")


def test_an_error_of_another_file_is_not_the_outputs(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_bytes(b"old")
    with pytest.raises(FileNotFoundError, match="input"), writing_atomically(target):
        (tmp_path / "input").read_bytes()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_is_no_place_for_a_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: Is a directory"):
        write_atomically(tmp_path, b"")


def test_a_target_may_be_neither_an_input_nor_another_target_by_any_name(tmp_path: Path) -> None:
    source, link, same = tmp_path / "run.json", tmp_path / "link", tmp_path / "hard"
    source.write_bytes(b"x")
    link.symlink_to(source)
    same.hardlink_to(source)
    for target in (source, link, same, tmp_path / "no" / ".." / "run.json"):
        with pytest.raises(UsageError, match="it is the input, which would be lost"):
            check_targets([target], [source])
    (tmp_path / "new link").symlink_to("new")
    with pytest.raises(UsageError, match="another output goes there"):
        check_targets([tmp_path / "new", tmp_path / "new link"])
    check_targets([tmp_path / "new", tmp_path / "newer"], [source])


def test_a_target_must_have_a_folder_and_be_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*no"):
        check_targets([tmp_path / "no" / "new"])
    with pytest.raises(UsageError, match="it is a folder"):
        check_targets([tmp_path])
