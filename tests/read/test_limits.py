"""Files made to fill the memory are refused, in little of it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
from cli.command import EXAMPLES
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.errors import TraceError
from unstall.read import kineto, load
from unstall.read.kineto import read
from unstall.timeline.limits import MOST_HEADER_EXPANSION

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
MB = 1 << 20
READ = r"""
import re, sys
from pathlib import Path
from unstall.errors import TraceError
from unstall.read import load
from unstall.read.kineto import read
from unstall.timeline.limits import MOST_HEADER_EXPANSION
try:
    read(Path(sys.argv[1]))
except TraceError as error:
    print(error)
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


def bomb(path: Path, start: bytes, unit: bytes) -> Path:
    """1 GiB of text in 1 MB or so: the packed form of 1 MiB of `unit`, again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    stretch = unit * (MB // len(unit))
    begun = packer.compress(start + stretch) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(stretch) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(begun + again * 1023)
    return path


def refusal(path: Path) -> str:
    """What a process of its own says to the file, which it reads in less than 200 MB."""
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    *said, peak_kb = done.stdout.splitlines()
    assert int(peak_kb) < 200 * 1024
    assert said, "it was not refused"
    return said[0]


@pytest.mark.parametrize(
    ("start", "unit"),
    [
        (b"", b" "),
        (b"[", b" "),
        (b"[", b"["),
        (b"[", b"}"),
        (b"[", b"0,"),
        (b"[", b"{},"),
        (b"[", b'{"ph":"X","ts":1,"name":"a"},\n'),
        (b'[{"ph":"X","name":"', b"a"),
        (b'[{"ph":"X","name":"', b"\\"),
        (b'[{"ph":"X","name":"', b"}, {"),
        (b'[{"ph":"X","args":{"a":[', b"{},"),
        (b'[{"ph":"X","args":{"a":[', b'{"ph":"X"},'),
        (b'{"a":"', b"a"),
        (b'{"a":{', b'"traceEvents":['),
        (b'{"traceEvents":[],"a":"', b"a"),
    ],
)
def test_bombs(tmp_path: Path, start: bytes, unit: bytes) -> None:
    said = refusal(bomb(tmp_path / "bomb.json.gz", start, unit))
    assert "no trace packs more than 250 times" in said or "are no events" in said


def test_one_event_of_a_gibibyte(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with path.open("wb") as file:
        file.write(b'{"traceEvents":[{"ph":"X","name":"')
        file.truncate(1 << 30)
    assert refusal(path) == (
        f"{path}: the event at byte 16 is longer than 16 MiB; no recorder writes such, so this is not read"
    )


def test_an_event_of_15_mebibytes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'[{"ph":"X","ts":1,"name":"' + b"}, {" * (15 * MB // 4) + b'"},{"ph":"X","ts":2}]')
    events = read(path)
    assert [len(events.strings[i]) for i in events.name] == [15 * MB // 4 * 4, 0]


def test_metadata_of_any_length_is_left_out_rather_than_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents":[{"ph":"X","ts":1}],"log":"' + b"a" * (20 * MB) + b'"}')
    events = read(path)
    assert len(events.name) == 1
    assert events.meta.notes == ("ignored the text after the events: it is too long for metadata",)


def test_distinct_texts_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "MOST_TEXT", 1000)
    path = tmp_path / "trace.json"
    path.write_bytes(b"[" + b",".join(b'{"ph":"X","ts":1,"name":"%d"}' % i for i in range(1000)) + b"]")
    with pytest.raises(TraceError, match="names and stacks are longer than"):
        read(path)


_LOAD = r"""
import re, sys
from pathlib import Path
from unstall.errors import TraceError
from unstall.read import load
try:
    load(Path(sys.argv[1]))
except TraceError as error:
    print(error)
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


def test_names_that_a_saved_timeline_repeats_to_fill_the_memory_are_refused(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.launch("kernel", 2)
    timeline = trace.timeline()
    path = tmp_path / "many.timeline"
    replace(timeline, strings=timeline.strings + ("ab",) * 4_000_000).save(path)
    assert path.stat().st_size < 200_000
    done = subprocess.run([sys.executable, "-c", _LOAD, str(path)], capture_output=True, text=True, check=True)
    said, peak_kb = done.stdout.splitlines()
    assert said.startswith(f"{path}: its names claim to unpack to 20,0")
    assert int(peak_kb) < 200 * 1024


@pytest.mark.parametrize("trace", ["bert_amp", "train_item"])
def test_the_names_of_real_timelines_are_far_below_the_limit(tmp_path: Path, trace: str) -> None:
    path = tmp_path / "real.timeline"
    load(EXAMPLES / f"{trace}.json.gz").save(path)
    with zipfile.ZipFile(path) as archive:
        names = archive.getinfo("timeline.json").file_size
    assert names * 4 < path.stat().st_size * MOST_HEADER_EXPANSION
    assert len(load(path).strings) > 100
