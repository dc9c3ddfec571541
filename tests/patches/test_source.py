"""Which source is read: files of Python below folders that the user opened, and nothing else that a trace names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unstall.patches.source import MAX_BYTES, Source, excerpt, read_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with pkg/train.py, beside a file outside of it."""
    opened = tmp_path / "project"
    (opened / "pkg").mkdir(parents=True)
    (opened / "pkg" / "train.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "outside.py").write_text("secret")
    return opened


def test_a_file_below_the_folder_is_read_by_its_relative_and_its_absolute_name(folder: Path) -> None:
    for name in ("pkg/train.py", str(folder / "pkg" / "train.py"), "./pkg/train.py"):
        found = read_source(name, [folder])
        assert isinstance(found, Source)
        assert (found.name, found.text) == ("pkg/train.py", "one\ntwo\nthree\n")


def test_the_end_of_a_name_leads_to_a_copy_only_if_asked(folder: Path) -> None:
    name = "/home/ada/project/pkg/train.py"
    assert isinstance(read_source(name, [folder]), str)
    assert isinstance(read_source(name, [folder], by_ending=True), Source)


def test_a_librarys_name_does_not_lead_to_a_file_of_the_program(folder: Path) -> None:
    for name in ("/usr/lib/python3.11/site-packages/lib/pkg/train.py", "transformers/pkg/train.py"):
        assert isinstance(read_source(name, [folder], by_ending=True), str)


@pytest.mark.parametrize("name", ["../outside.py", "pkg/../../outside.py", "{outside}", "link.py", "linked/outside.py"])
@pytest.mark.parametrize("by_ending", [False, True])
def test_nothing_outside_is_read_by_any_name_or_link(folder: Path, name: str, by_ending: bool) -> None:
    (folder / "link.py").symlink_to("../outside.py")
    (folder / "linked").symlink_to("..")
    found = read_source(name.format(outside=folder.parent / "outside.py"), [folder], by_ending=by_ending)
    assert isinstance(found, str)


def test_only_regular_files_of_python_of_a_bounded_size_are_read(folder: Path) -> None:
    (folder / "key.pem").write_text("secret")
    (folder / "large.py").write_bytes(b"#" * (MAX_BYTES + 1))
    (folder / "latin.py").write_bytes(b"# \xe9")
    (folder / "binary.py").write_bytes(b"\0")
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    for name in ("key.pem", "large.py", "latin.py", "binary.py", "folder.py", "pipe.py", "gone.py", "a\0.py"):
        assert isinstance(read_source(name, [folder]), str), name


def test_an_excerpt_has_the_lines_around(folder: Path) -> None:
    found = read_source("pkg/train.py", [folder])
    part = excerpt(found, 2, 1)
    assert (part.first, part.lines, part.why_not) == (1, ("one", "two", "three"), "")
    assert "was changed since" in excerpt(found, 9).why_not
