"""Which engine replays, and that the C one can be built and treats memory well."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import threading
import tomllib
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay.invented import Do, program, random_program
from replay.running import Engine, with_columns

import unstall
from unstall.errors import UsageError
from unstall.replay import engine as engines
from unstall.replay.meeting import Meeting
from unstall.replay.program import Code

COMPILER = shutil.which("cc")
SOURCES = sorted((Path(engines.__file__).parent / "native").glob("*.c"))
built = pytest.mark.skipif("c" not in engines.ENGINES, reason="the C engine is not built: there was no C compiler")


@built
def test_the_c_engine_replays_where_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSTALL_ENGINE", raising=False)
    assert engines.name() == "c"


def test_the_environment_forces_an_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    forced = next(name for name, known in engines.ENGINES.items() if known is engine)
    monkeypatch.setenv("UNSTALL_ENGINE", forced)
    assert engines.name() == forced
    assert engines.replay(program(Do(Code.CALL, call=7))).end.tolist() == [7]


def test_an_engine_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSTALL_ENGINE", "rust")
    with pytest.raises(UsageError, match="UNSTALL_ENGINE is 'rust': it can be c or python, or unset"):
        engines.name()


def test_a_c_engine_that_is_not_built_is_refused_or_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ENGINES", {"python": engines.ENGINES["python"]})
    monkeypatch.delenv("UNSTALL_ENGINE", raising=False)
    assert engines.name() == "python"
    monkeypatch.setenv("UNSTALL_ENGINE", "c")
    with pytest.raises(UsageError, match="the C engine is not built: install a C compiler"):
        engines.replay(program())


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_the_c_engine_compiles_without_a_warning() -> None:
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wmissing-prototypes", "-Werror", "-fsyntax-only"]
    headers = ["-isystem", sysconfig.get_paths()["include"]]
    done = subprocess.run([str(COMPILER), *strict, *headers, *map(str, SOURCES)], capture_output=True, text=True)
    assert done.stderr == ""


def test_all_files_of_the_c_engine_are_built() -> None:
    root = Path(__file__).parents[2]
    modules = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["ext-modules"]
    (engine,) = (each for each in modules if each["name"] == "unstall.replay._engine")
    package = Path(unstall.__file__).parent  # elsewhere, if a copy of it is tested
    assert [root / source for source in engine["sources"]] == [
        root / "src" / "unstall" / source.relative_to(package) for source in SOURCES
    ]


@built
@pytest.mark.parametrize("count", [0, 25, 27])
def test_the_c_engine_wants_all_of_its_arguments(count: int) -> None:
    from unstall.replay import _engine

    nothing: list[Any] = [np.zeros(0, dtype=np.int32)] * count
    with pytest.raises(TypeError, match=f"replay takes 26 arguments, not {count}"):
        _engine.replay(*nothing)


@built
def test_the_c_engine_reads_no_column_that_is_not_aligned() -> None:
    from unstall.replay import _engine

    code, row, nothing = np.zeros(1, dtype=np.int8), np.zeros(1, dtype=np.int32), np.zeros(0, dtype=np.int32)
    apart = memoryview(bytearray(9))[1:].cast("q")
    arguments: list[Any] = [code, row, row, row, *[apart] * 4, *[nothing] * 8, *[apart[:0]] * 6, nothing, 1, 0, 1]
    with pytest.raises(ValueError, match=r"instructions\.work must be one contiguous column of int64"):
        _engine.replay(*arguments)


@built
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"ops_lag": None},
        {"ops_lag": np.zeros(1, dtype=np.int64)},
        {"capacity": 1.5},
        {"capacity": 1 << 70},
        {"engines": 0},
        {"instructions_work": np.full(1000, 1 << 60)},
    ],
    ids=lambda change: next(iter(change), "nothing"),
)
def test_the_c_engine_gives_back_all_memory(change: dict[str, Any]) -> None:
    valid = random_program(1000)
    changed = with_columns(valid, **change)
    met = Meeting(
        np.array([0, 2]), np.array([0, 1]), np.array([3, 3]), np.ones(2, np.int8), np.array([10, 10]), np.arange(2)
    )

    def replay_often() -> int:
        for _ in range(20):
            with suppress(ValueError, TypeError):
                engines.ENGINES["c"](changed)
            with suppress(ValueError, TypeError):
                engines.JOBS["c"]([valid, changed], met, np.zeros(2, np.int64))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        replay_often()
        # Python 3.11 keeps each tuple of 20 arguments in a free list, 200 bytes. A column has at least 1,000.
        assert abs(replay_often() - replay_often()) < 8000
    finally:
        tracemalloc.stop()


@built
def test_no_thread_can_change_indices_under_the_c_engine() -> None:
    """Indices far outside come and go while it runs: each replay is of a valid program, or refused."""
    valid = random_program(30_000)
    columns = {name: getattr(valid.instructions, name).copy() for name in ("thread", "stream", "target")}
    columns = {f"instructions_{name}": column for name, column in columns.items()}
    shared = with_columns(valid, **columns)
    over = threading.Event()

    def spoil() -> None:
        kept = {name: column.copy() for name, column in columns.items()}
        while not over.is_set():
            for name, column in columns.items():
                column[:] = 1 << 30
                column[:] = kept[name]

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    replayed = refused = 0
    try:
        for _ in range(100):
            try:
                engines.ENGINES["c"](shared)
                replayed += 1
            except ValueError:
                refused += 1
    finally:
        over.set()
        spoiler.join()
    assert replayed + refused == 100
