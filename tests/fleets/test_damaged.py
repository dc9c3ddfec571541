"""One file of a job is damaged, missing or no part of it: it is named, and the other ranks are explained as before."""

from __future__ import annotations

import gzip
import random
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fleets.jobs import job, train_ddp
from processes import succeeded

from unstall.fleets.fleet import explain_fleet
from unstall.fleets.result import FleetResult

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_straggler.py"
RANKS, STRAGGLER, DAMAGED = 4, 2, 1
REST = [rank for rank in range(RANKS) if rank != DAMAGED]


@pytest.fixture(scope="module", params=["written", pytest.param("recorded", marks=pytest.mark.slow)])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of four ranks with a straggler: written event by event, or recorded from torch's DDP on virtual GPUs."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "written":
        job(
            partial(train_ddp, slow=STRAGGLER, cause="kernel"),
            folder,
            ranks=RANKS,
            host_jitter=0.05,
            kernel_jitter=0.02,
        )
        return folder
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "-m", "unstall", "run"]
    succeeded([sys.executable, "-m", *command, "--gpu", f"h200:{RANKS}", str(EXAMPLE)], timeout=300, cwd=folder)
    for rank in range(RANKS):
        trace = folder / f"ddp_straggler-rank{rank}.trace.json.gz"
        (folder / f"rank{rank}.json").write_bytes(gzip.decompress(trace.read_bytes()))
        trace.unlink()
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "job"))


def explained(folder: Path) -> FleetResult:
    return explain_fleet(folder, cache=False)


def why_not(result: FleetResult) -> dict[str, str]:
    return {Path(each.path).name: each.why for each in result.not_read}


def assert_rest_is_explained(result: FleetResult) -> None:
    """The answer is about the other ranks, and it names the rank that makes them wait."""
    assert [each.rank for each in result.ranks] == REST
    assert result.missing == (DAMAGED,)
    assert [each.rank for each in result.stragglers] == [STRAGGLER]
    assert result.verdict.bound_by == "straggler"


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = msgspec.json.decode(path.read_bytes())
    change(document)
    path.write_bytes(msgspec.json.encode(document))


def test_a_whole_job_names_its_straggler_and_no_file(folder: Path) -> None:
    result = explained(folder)
    assert (result.not_read, result.missing) == ((), ())
    assert [each.rank for each in result.stragglers] == [STRAGGLER]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_cut_is_named(folder: Path, packed: bool) -> None:
    path = folder / f"rank{DAMAGED}.json"
    data = path.read_bytes()
    if packed:
        path.unlink()
        path, data = folder / f"rank{DAMAGED}.json.gz", gzip.compress(data)
    path.write_bytes(data[: len(data) // 20])
    result = explained(folder)
    assert set(why_not(result)) == {path.name}
    assert_rest_is_explained(result)


def test_a_file_that_is_missing_is_told_by_its_rank(folder: Path) -> None:
    (folder / f"rank{DAMAGED}.json").unlink()
    result = explained(folder)
    assert result.not_read == ()
    assert_rest_is_explained(result)


def test_a_file_that_is_there_twice_is_used_once(folder: Path) -> None:
    before = explained(folder)
    path = folder / f"rank{DAMAGED}.json"
    shutil.copy(path, folder / "twin.json")
    again = Path(shutil.copy(path, folder / "z.json"))
    changed(again, lambda document: document.update(written="again"))
    result = explained(folder)
    assert why_not(result) == {
        "twin.json": f"it is the same file as {path}",
        "z.json": f"{path} is already the file of rank {DAMAGED}",
    }
    assert msgspec.structs.replace(result, not_read=()) == before


def test_a_file_of_another_job_is_named(folder: Path) -> None:
    changed(
        folder / f"rank{DAMAGED}.json",
        lambda document: document["distributedInfo"].update(world_size=64),
    )
    result = explained(folder)
    assert "another job" in why_not(result)[f"rank{DAMAGED}.json"]
    assert len(result.not_read) == 1
    assert_rest_is_explained(result)


def nested(data: bytes) -> bytes:
    return b'{"traceEvents":[' + b'{"ph":"X","args":' * 100_000


def huge_numbers(data: bytes) -> bytes:
    return data.replace(b'"dur":', b'"dur":1e308,"was":').replace(b'"ts":', b'"ts":-1e308,"at":')


def noise(data: bytes) -> bytes:
    return random.Random(7).randbytes(1 << 16)


def a_bomb(data: bytes) -> bytes:
    return gzip.compress(b'{"traceEvents":[' + b" " * (1 << 26))


def words_for_numbers(data: bytes) -> bytes:
    return data.replace(b'"ts":', b'"ts":"now","at":')


@pytest.mark.parametrize("attack", [nested, huge_numbers, noise, a_bomb, words_for_numbers])
def test_a_hostile_file_is_named(folder: Path, attack: Callable[[bytes], bytes]) -> None:
    path = folder / f"rank{DAMAGED}.json"
    path.write_bytes(attack(path.read_bytes()))
    result = explained(folder)
    assert set(why_not(result)) == {path.name}
    assert why_not(result)[path.name].strip()
    assert_rest_is_explained(result)
