"""What numbers in a recording stand for, and paths as a user would write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unstall.fix import wrapped
from unstall.frameworks import OURS, is_framework, is_users
from unstall.lines.places import read_places


def _write(folder: Path, *entries: object, torn: bytes = b"") -> Path:
    (folder / "places.jsonl").write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in entries) + torn)
    return folder


def test_everything_goes_by_its_number(tmp_path: Path) -> None:
    folder = _write(
        tmp_path,
        {"span": 0, "name": "backward"},
        {"stack": 3, "frames": [["/home/me/train.py", 7, "step"], ["/home/me/train.py", 20, "<module>"]]},
        {"place": 5, "file": "/home/me/data/load.py", "line": 9, "function": "read"},
        {"thread": 0, "id": 4000, "name": "MainThread"},
        {"thread": 1, "id": 4001, "name": ""},
        {"python_thread": 4001, "name": "Thread-1"},
    )
    places = read_places(folder, "/home/me")
    assert places.spans == {0: "backward"}
    assert places.stacks == {3: (("train.py", 7, "step"), ("train.py", 20, "<module>"))}
    assert places.lines == {5: ("data/load.py", 9, "read")}
    assert places.clocked == {0: 4000, 1: 4001}
    assert places.threads == {4000: "MainThread", 4001: "Thread-1"}


@pytest.mark.parametrize("torn", [b'{"span": 1, "na', b'{"span": 1}', b"7\n", b"\xff\xfe\n", b'"stack"\n[]\n'])
def test_a_line_that_is_cut_off_is_left_out(torn: bytes, tmp_path: Path) -> None:
    folder = _write(tmp_path, {"span": 0, "name": "backward"}, torn=torn)
    assert read_places(folder, "/").spans == {0: "backward"}


def test_a_folder_without_places_has_none(tmp_path: Path) -> None:
    places = read_places(tmp_path, "/")
    assert (places.stacks, places.lines, places.threads) == ({}, {}, {})


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/me/train.py", "train.py"),
        ("/home/me/models/net.py", "models/net.py"),
        ("/home/mean/train.py", "/home/mean/train.py"),
        ("/opt/env/lib/python3.12/site-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"),
        ("/home/me/.venv/lib/python3.11/site-packages/timm/models.py", "timm/models.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
        ("/usr/lib/python3.11/threading.py", "threading.py"),
        ("<string>", "<string>"),
        ("train.py", "train.py"),
        # As below the folder they would be taken for modules of the standard library, or torch's own.
        ("/home/me/platform/train.py", "/home/me/platform/train.py"),
        ("/home/me/profile.py", "/home/me/profile.py"),
        ("/home/me/torch/train.py", "/home/me/torch/train.py"),
    ],
)
def test_paths_are_short_and_stay_the_users_or_a_frameworks(path: str, short: str, tmp_path: Path) -> None:
    folder = _write(tmp_path, {"place": 0, "file": path, "line": 1, "function": "f"})
    (shown, _, _) = read_places(folder, "/home/me").lines[0]
    assert shown == short
    assert is_framework(shown) == is_framework(path)


def test_files_of_unstall_are_a_frameworks_in_a_checkout_too(tmp_path: Path) -> None:
    """Whose folder the program may have been started in."""
    folder = _write(tmp_path, {"place": 0, "file": wrapped.__file__, "line": 1, "function": "f"})
    (shown, _, _) = read_places(folder, str(Path(wrapped.__file__).parents[3])).lines[0]
    assert shown == "unstall/fix/wrapped.py"
    assert is_framework(shown)


def test_paths_of_a_program_that_was_started_at_the_root_are_relative_to_it(tmp_path: Path) -> None:
    folder = _write(tmp_path, {"place": 0, "file": "/workspace/train.py", "line": 1, "function": "f"})
    assert read_places(folder, "/").lines[0][0] == "workspace/train.py"


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/home/me/train.py", True),
        ("<ipython-input-3-1f2e>", True),
        ("<string>", False),
        (f"{OURS}cli/run.py", False),
        ("/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
    ],
)
def test_a_file_that_a_user_edits_is_the_users(path: str, answer: bool) -> None:
    assert is_users(path) is answer
