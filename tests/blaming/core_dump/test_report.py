"""What a person reads of a core dump, and the lines of a saved result that launched its kernel."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from blaming.core_dump.dumps import content, dump

from unstall.blaming.core_dump.document import ShownCoreDump
from unstall.blaming.core_dump.launched_by import launched_by
from unstall.blaming.core_dump.result import CoreDump, DeviceException, Grid
from unstall.blaming.document import Blame
from unstall.blaming.result import BlameResult, Line, Suspect
from unstall.cli import main

FAULT = BlameResult(
    error="illegal memory access",
    code=700,
    suspects=(
        Suspect(
            where=Line("train.py", 15, "step"),
            work=("add",),
            others=(Line("train.py", 16, "step"), Line("train.py", 17, "step")),
            others_work=(("scale",), ("mul",)),
        ),
        Suspect(where=Line("train.py", 30, "step"), work=("scale", "add")),
    ),
)


def text(of: CoreDump) -> str:
    return " ".join(str(ShownCoreDump(of)).split())


def test_the_first_sentence_names_exception_kernel_and_line_of_source() -> None:
    assert (
        "Warp Illegal Address in scale at /home/me/kernels/tri.py:13 (scale+0x2d0): a thread read or wrote memory that "
        "is not there." in text(dump("triton"))
    )


def test_a_long_name_is_told_without_its_types_in_the_first_sentence() -> None:
    assert "Warp Assert in at::native::vectorized_gather_kernel<16, long>: an assertion failed." in text(dump("assert"))


def test_how_much_was_on_the_device_is_told() -> None:
    assert "on the device: 16 of 16 blocks on 16 multiprocessors, 128 warps; grid 3" in text(dump("illegal"))


def test_a_kernel_without_an_exception_is_told_with_where_it_stands() -> None:
    told = text(dump("spin"))
    assert "No exception. On the device ran spin." in told
    assert "stands at: spin+0x50, 1 warp" in told


def test_an_idle_device_is_told_as_that() -> None:
    assert "No exception, and no kernel ran: the device was idle or waited." in text(dump("value"))


def test_an_exception_of_no_kernel_is_told() -> None:
    lost = CoreDump(elsewhere=(DeviceException(code=10, name="Device Illegal Address", words="so", error=700),))
    assert "Device Illegal Address: so" in text(lost)


def test_of_lines_that_had_not_finished_those_that_launched_the_kernel_are_told() -> None:
    (grid,) = launched_by(dump("illegal"), FAULT).grids
    assert grid.launched_by == ("train.py:16", "train.py:30")


def test_a_kernel_without_a_name_was_launched_by_no_line() -> None:
    nameless = CoreDump(grids=(Grid(kernel=""),))
    with_work = BlameResult(suspects=(Suspect(where=Line("train.py", 1, "f"), work=("",)),))
    assert launched_by(nameless, with_work).grids[0].launched_by == ()


def test_the_report_of_a_run_has_the_exception_and_its_instruction() -> None:
    told = " ".join(str(Blame(msgspec.structs.replace(FAULT, dump=dump("triton")))).split())
    assert "exception: Warp Illegal Address" in told
    assert "instruction: /home/me/kernels/tri.py:13 (scale+0x2d0)" in told


def test_the_report_of_a_run_says_that_the_dump_is_of_a_second_run() -> None:
    told = " ".join(str(Blame(msgspec.structs.replace(FAULT, dump=dump("triton")))).split())
    assert "In a second run, which wrote a core dump: kernel: scale" in told


def test_the_report_of_a_run_names_the_kernel_once() -> None:
    suspect = Suspect(where=Line("train.py", 16, "step"), work=("scale",))
    told = str(Blame(msgspec.structs.replace(FAULT, suspects=(suspect,), dump=dump("triton"))))
    assert told.count("kernel: scale") == 1
    assert "\n\n\n" not in told


def test_the_report_of_a_run_says_why_there_is_no_dump() -> None:
    told = " ".join(str(Blame(msgspec.structs.replace(FAULT, no_dump="this driver cannot"))).split())
    assert "No core dump: this driver cannot." in told


@pytest.fixture
def core(tmp_path: Path) -> Path:
    (tmp_path / "a.core").write_bytes(content("illegal"))
    return tmp_path / "a.core"


def test_the_command_tells_of_a_dump(core: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blame", "--core", str(core)]) == 0
    assert "Warp Illegal Address in scale" in capsys.readouterr().out


def test_the_command_joins_a_saved_result(core: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = core.with_name("fault.json")
    Blame(FAULT).save(saved)
    assert main(["blame", "--core", str(core), str(saved), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["grids"][0]["launched_by"]) == (
        "unstall.core-dump/1",
        ["train.py:16", "train.py:30"],
    )


def test_the_command_refuses_a_file_that_is_no_dump(core: Path, capsys: pytest.CaptureFixture[str]) -> None:
    core.write_text("no dump")
    assert main(["blame", "--core", str(core)]) == 3
    assert "not a 64-bit ELF file" in capsys.readouterr().err


def test_the_command_refuses_a_result_of_another_kind(core: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = core.with_name("other.json")
    other.write_text('{"schema": "unstall.result/1"}')
    assert main(["blame", "--core", str(core), str(other)]) == 3
    assert "its schema is 'unstall.result/1'" in capsys.readouterr().err
