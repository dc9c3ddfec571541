"""The journal: whole events, wherever the program was cut off."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.recording.journal import Follower, Journal, read

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_EVENTS = st.lists(st.tuples(st.text(), st.integers(), _VALUES), min_size=1, max_size=6)


@given(events=_EVENTS, data=st.data())
def test_a_journal_cut_at_any_byte_gives_the_events_before_it(
    events: list[tuple[str, int, object]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("recording")
    ends = _write(folder, events)
    path = folder / "journal.jsonl"
    cut = data.draw(st.integers(0, ends[-1]))
    path.write_bytes(path.read_bytes()[:cut])

    whole = [{"event": name, "at": at, "value": value} for name, at, value in events]
    assert read(folder) == whole[: sum(end <= cut for end in ends)]


@given(events=_EVENTS, data=st.data())
def test_following_gives_each_event_once(
    events: list[tuple[str, int, object]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("recording")
    _write(folder, events)
    path = folder / "journal.jsonl"
    written = path.read_bytes()
    follower = Follower(folder)
    seen = []
    for cut in [*sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=5))), len(written)]:
        path.write_bytes(written[:cut])
        seen += follower.events()
    assert seen == read(folder)
    assert len(seen) == len(events)


def test_an_event_is_stamped_with_the_hosts_clock(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    before = time.perf_counter_ns()
    journal.write("armed", pid=7)
    after = time.perf_counter_ns()
    journal.write("mark", at=12, step=3)
    journal.close()
    armed, mark = read(tmp_path)
    assert before <= armed["at"] <= after
    assert armed["pid"] == 7
    assert mark == {"event": "mark", "at": 12, "step": 3}


def test_two_writers_append_to_one_journal(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    for number in range(3):
        first.write("a", number=number)
        second.write("b", number=number)
    assert [(event["event"], event["number"]) for event in read(tmp_path)] == [
        (name, number) for number in range(3) for name in "ab"
    ]


def test_half_an_event_of_a_killed_program_hides_no_other(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("first")
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"event": "cut sho')
    journal.write("next")
    assert [event["event"] for event in read(tmp_path)] == ["first", "next"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on a file's size")
def test_an_event_without_room_takes_no_event_with_it_that_another_process_writes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    journal, other = Journal(tmp_path), Journal(tmp_path)
    path = tmp_path / "journal.jsonl"
    journal.write("first")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    write = os.write

    def write_while_another_does(file: int, data: bytes) -> int:
        monkeypatch.undo()
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
        written = write(file, data)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        other.write("second")
        return written

    monkeypatch.setattr(os, "write", write_while_another_does)
    try:
        with pytest.raises(OSError, match="No space left on device"):
            journal.write("no room")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [event["event"] for event in read(tmp_path)] == ["first", "second"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on a file's size")
def test_of_an_event_that_the_disk_has_no_room_for_nothing_is_left(tmp_path: Path) -> None:
    import resource

    journal = Journal(tmp_path)
    journal.write("first")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "journal.jsonl").stat().st_size + 10, limits[1]))
    try:
        with pytest.raises(OSError, match="No space left on device"):
            journal.write("second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    journal.write("third")
    assert [event["event"] for event in read(tmp_path)] == ["first", "third"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_program_that_closes_all_files_keeps_its_own_apart_from_the_journal(tmp_path: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    journal = Journal(tmp_path)
    journal.write("armed")
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("over")
    journal.close()
    journal.write("mark")
    assert [event["event"] for event in read(tmp_path)] == ["over"]


def test_what_json_does_not_know_is_kept_as_text(tmp_path: Path) -> None:
    Journal(tmp_path).write("versions", cuda=Path("/usr/local/cuda"))
    assert read(tmp_path)[0]["cuda"] == "/usr/local/cuda"


def test_a_journal_not_begun_has_no_events(tmp_path: Path) -> None:
    assert read(tmp_path) == []


def _write(folder: Path, events: list[tuple[str, int, object]]) -> list[int]:
    """Write them, and tell at which byte each one ends, its newline included."""
    journal = Journal(folder)
    ends = []
    for name, at, value in events:
        journal.write(name, at=at, value=value)
        ends.append((folder / "journal.jsonl").stat().st_size)
    journal.close()
    return ends
