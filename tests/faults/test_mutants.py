"""Mutants of every kind of file that we read: each is read, or refused in a sentence, soon and in little memory.

The seed is printed. UNSTALL_SEED sets it, UNSTALL_MUTANTS the number of mutants of the slow test.
"""

from __future__ import annotations

import gzip
import os
import random
import resource
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
from faults.mutate import Mutate, of_bytes, of_gzip, of_json, of_zip, seed_of
from recording.folders import Folder
from report.rendered import as_json
from report.sample import TYPICAL
from traces import TraceBuilder

from unstall.cli import main

pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)

_FAST, _SLOW = 320, 10_000
_LONGEST_S = 20
_MOST_MORE_KB = 2 << 20
_ENDED = 2**22 + 1


@cache
def _trace() -> TraceBuilder:
    trace = TraceBuilder()
    for _ in range(5):
        with trace.step(), trace.frame("train.py", 12, "step"):
            for _ in range(4):
                with trace.op("aten::add"):
                    trace.launch("kernel", 5)
            with trace.op("aten::item"):
                trace.item()
            trace.stream_wait(trace.record(stream=7), stream=9, device=0)
            trace.launch("other", 3, stream=9)
    return trace


def _plain(folder: Path) -> bytes:
    return _trace().write(folder / "trace.json").read_bytes()


def _packed(folder: Path) -> bytes:
    return gzip.compress(_plain(folder))


def _timeline(folder: Path) -> bytes:
    _trace().timeline().save(folder / "run.timeline")
    return (folder / "run.timeline").read_bytes()


def _result(_folder: Path) -> bytes:
    return as_json(TYPICAL).encode()


def _database(folder: Path) -> bytes:
    path = folder / "run.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, name text)")
        database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, ?)", [(i, i + 5, "k") for i in range(99)]
        )
    database.close()
    return path.read_bytes()


def _table(_folder: Path) -> bytes:
    head = "Name".rjust(30) + "Self CPU %".rjust(14) + "CUDA total".rjust(14) + "# of Calls".rjust(12)
    rows = [f"{f'aten::op{i}':>30}{i / 10:>13.2f}%{i * 1.5:>12.3f}us{i:>12}" for i in range(40)]
    return "\n".join(["-" * 70, head, "-" * 70, *rows, "-" * 70, "Self CUDA time total: 3.1ms"]).encode()


_FILES: dict[str, tuple[Callable[[Path], bytes], Mutate, list[str]]] = {
    "trace, bytes": (_plain, of_bytes, ["explain", "--json"]),
    "trace, structure": (_plain, of_json, ["explain", "--format", "markdown"]),
    "packed trace, bytes": (_packed, of_bytes, ["explain", "--json"]),
    "packed trace, structure": (_packed, of_gzip(of_json), ["explain", "--format", "github"]),
    "timeline, bytes": (_timeline, of_bytes, ["explain", "--json"]),
    "timeline, structure": (_timeline, of_zip, ["explain", "--json"]),
    "result, bytes": (_result, of_bytes, ["report", "--format", "markdown"]),
    "result, structure": (_result, of_json, ["report", "--format", "markdown"]),
    "database, bytes": (_database, of_bytes, ["explain", "--json"]),
    "table, bytes": (_table, of_bytes, ["explain", "--json"]),
}


@contextmanager
def _soon(what: str) -> Iterator[None]:
    """Fails if the block takes longer than 20 seconds."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"{what} takes longer than {_LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _command(arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Runs a command. Its exit code is one of those that are documented, and no traceback is shown."""
    with _soon(what):
        try:
            code = main(arguments)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    said = capsys.readouterr()
    assert "Traceback" not in said.err, f"{what}: {said.err}"
    assert code in (0, 3), f"{what}: exit code {code}: {said.err}"
    assert code == 0 or said.err.startswith("unstall: "), f"{what}: {said.err}"
    return code


def _mutants_of_files(seed: int, count: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """Returns how many mutants of each kind were read."""
    bases = {name: make(folder) for name, (make, _, _) in _FILES.items()}
    names, read = list(_FILES), dict.fromkeys(_FILES, 0)
    for number in range(count):
        name = names[number % len(names)]
        _, mutate, verb = _FILES[name]
        mutant = folder / "mutant"
        mutant.write_bytes(mutate(bases[name], random.Random(seed_of(seed, name, number))))
        read[name] += not _command([*verb, str(mutant)], f"seed {seed}: {name}, mutant {number}", capsys)
    return read


def _mutants_of_folders(seed: int, count: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Mutates one file of a recording's folder, and recovers it. Returns how many were recovered."""
    whole = folder / "unstall-whole"
    whole.mkdir(mode=0o700)
    recording = Folder(whole)
    recording.journal.write("armed", at=0, pid=_ENDED, folder="/home/somebody")
    recording.window(1_000)
    recording.marks(2_000, 9_000, 12_000)
    stack = recording.stack(("/home/somebody/train.py", 7, "train"))
    recording.kernel("gemm", 5_000, 8_000, recording.call("cuLaunchKernel", 3_000, 4_000, stack=stack))
    recording.write()
    files = sorted(path.name for path in whole.iterdir())
    recovered = 0
    for number in range(count):
        name = files[number % len(files)]
        mutant, what = folder / "unstall-mutant", f"seed {seed}: {name} of a folder, mutant {number}"
        shutil.copytree(whole, mutant)
        mutant.chmod(0o700)
        changed = random.Random(seed_of(seed, name, number))
        original = (mutant / name).read_bytes()[:4096]
        (mutant / name).write_bytes(of_bytes(original, changed))
        with _soon(what):
            code = main(["recover", str(mutant), str(folder / "recovered.json")])
        said = capsys.readouterr()
        assert code in (0, 1, 2, 3), f"{what}: {said.err}"
        assert code == 0 or said.err.startswith("unstall: "), f"{what}: {said.err}"
        assert "Traceback" not in said.err, f"{what}: {said.err}"
        recovered += not code
        shutil.rmtree(mutant)
    return recovered


def _check(seed: int, count: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" seed {seed}", end="", flush=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    read = _mutants_of_files(seed, count * 4 // 5, folder, capsys)
    recovered = _mutants_of_folders(seed, count // 5, folder, capsys)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert more < _MOST_MORE_KB, f"seed {seed}: {more:,} KB more were needed"
    with capsys.disabled():
        print(
            f", {count} mutants in {time.monotonic() - began:.0f} s, read: {read}, recovered: {recovered}", flush=True
        )
    for name in ("trace, structure", "timeline, structure", "result, structure"):  # a mutator of rubbish tests nothing
        assert read[name], name
    assert recovered


@pytest.mark.ci
def test_a_few_hundred_mutants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _check(int(os.environ.get("UNSTALL_SEED", "1")), _FAST, tmp_path, capsys)


@pytest.mark.slow
def test_many_mutants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("UNSTALL_SEED", "0")) or random.randrange(1, 1 << 30)
    _check(seed, int(os.environ.get("UNSTALL_MUTANTS", _SLOW)), tmp_path, capsys)
