"""The driver is asked for a core dump by its variables, unless the user has asked himself; and its file is found."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest
from blaming.core_dump.dumps import content

from unstall.blaming.core_dump.arming import arm, is_armed, refusal
from unstall.blaming.core_dump.find import find

ARMED = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"
FILE = "CUDA_COREDUMP_FILE"


def test_an_armed_process_writes_no_memory_and_goes_on() -> None:
    environment: dict[str, str] = {}
    arm(environment, Path("/folder"))
    flags = environment["CUDA_COREDUMP_GENERATION_FLAGS"].split(",")
    assert {"skip_global_memory", "skip_abort"} <= set(flags)
    assert environment[FILE] == "/folder/core.%p"


@pytest.mark.parametrize("theirs", [{FILE: "mine"}, {ARMED: "0"}, {"CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1"}])
def test_variables_of_the_user_are_left_alone(theirs: dict[str, str]) -> None:
    environment = dict(theirs)
    arm(environment, Path("/folder"))
    assert environment == theirs


def test_a_driver_before_12_1_is_told_as_the_reason() -> None:
    assert "since CUDA 12.1" in refusal({ARMED: "1"}, ctypes.CDLL(None))


def test_variables_that_ask_for_no_dump_are_told_as_the_reason() -> None:
    assert ARMED in refusal({FILE: "mine"}, ctypes.CDLL(None))


def armed(file: Path | str) -> dict[str, str]:
    return {ARMED: "1", FILE: str(file)}


def written(path: Path, name: str = "spin", at_s: float = 1000.0) -> Path:
    path.write_bytes(content(name))
    os.utime(path, (at_s, at_s))
    return path


def test_the_dump_of_a_process_is_found_by_its_number(tmp_path: Path) -> None:
    written(tmp_path / "core.8", "value")
    mine = written(tmp_path / "core.7")
    found = find(armed(tmp_path / "core.%p"), 7, 999.0)
    assert found.file == mine
    assert found.dump is not None
    assert found.dump.grids[0].kernel == "spin"


def test_a_dump_in_the_current_folder_is_found_if_the_user_named_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "core_1000_host_7.nvcudmp")
    assert find({ARMED: "1"}, 7, 999.0).file == Path("core_1000_host_7.nvcudmp")


def test_a_dump_of_an_earlier_run_is_not_taken(tmp_path: Path) -> None:
    written(tmp_path / "mine", at_s=900.0)
    assert find(armed(tmp_path / "mine"), 7, 999.0).file is None


def test_a_folder_with_a_star_in_its_name_matches_no_other(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    written(tmp_path / "a" / "core")
    assert find(armed(tmp_path / "*" / "core"), 7, 999.0).file is None


def test_a_broken_dump_is_told_as_that(tmp_path: Path) -> None:
    written(tmp_path / "core").write_bytes(content("spin")[:100])
    found = find(armed(tmp_path / "core"), 7, 0.0)
    assert found.dump is None
    assert "cut off" in found.why


def test_a_process_that_was_not_armed_has_no_dump(tmp_path: Path) -> None:
    written(tmp_path / "core")
    assert find({FILE: str(tmp_path / "core")}, 7, 0.0).file is None
    assert not is_armed({FILE: "core"})
