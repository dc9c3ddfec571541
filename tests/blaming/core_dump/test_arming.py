"""The driver is asked for a core dump by its variables, unless the user has asked himself; and its file is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from blaming.core_dump.dumps import content

from unstall.blaming.core_dump.arming import is_armed, variables
from unstall.blaming.core_dump.find import find

ARMED = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"
FILE = "CUDA_COREDUMP_FILE"


class Driver:
    """The library of a driver of this version, as ctypes has it."""

    def __init__(self, version: int) -> None:
        self.version = version

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802 - the driver's
        version._obj.value = self.version
        return 0


def test_an_armed_process_writes_no_memory_and_goes_on() -> None:
    found, why = variables({"HOME": "/home/me"}, Path("/folder"), Driver(13000))
    flags = found["CUDA_COREDUMP_GENERATION_FLAGS"].split(",")
    assert {"skip_global_memory", "skip_abort"} <= set(flags)
    assert (found[FILE], is_armed(found), why) == ("/folder/core.%p", True, "")


def test_a_driver_before_12_5_is_told_so_by_other_variables() -> None:
    found, _ = variables({}, Path("/folder"), Driver(12040))
    assert found["CUDA_ENABLE_LIGHTWEIGHT_COREDUMP"] == "1"
    assert found["CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION"] == "0"


def test_a_driver_before_12_1_is_not_asked() -> None:
    assert variables({}, Path("/folder"), Driver(12000)) == (
        {},
        "this driver, of CUDA 12.0, writes none without memory; drivers since CUDA 12.1 do",
    )


@pytest.mark.parametrize("theirs", [{FILE: "mine"}, {ARMED: "0"}, {"CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1"}])
def test_variables_of_the_user_are_left_alone(theirs: dict[str, str]) -> None:
    found, why = variables(theirs, Path("/folder"), Driver(13000))
    assert found == {}
    assert ARMED in why


def test_variables_of_the_user_that_ask_for_a_dump_are_enough() -> None:
    assert variables({ARMED: "1"}, Path("/folder"), Driver(13000)) == ({}, "")


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


def test_a_dump_that_only_a_child_process_wrote_is_told_as_that(tmp_path: Path) -> None:
    childs = written(tmp_path / "core.8")
    found = find(armed(tmp_path / "core.%p"), 7, 999.0)
    assert (found.file, found.dump) == (childs, None)
    assert found.why.endswith(f"but another that inherited its variables did: {childs}")


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
