"""A core dump names the kernel: of the work that had not finished, the lines that launched it are left."""

from __future__ import annotations

import sys

import msgspec
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the ring is there for Linux alone")

from blaming.core_dump.dumps import dump  # noqa: E402
from blaming.device import PROGRAM, Device, device, kernel  # noqa: E402

from unstall.blaming import _blame  # noqa: E402
from unstall.blaming.core_dump.find import Found  # noqa: E402
from unstall.blaming.core_dump.result import CoreDump, DeviceException, Grid  # noqa: E402
from unstall.blaming.core_dump.second_run import joined  # noqa: E402
from unstall.blaming.result import BlameResult, Tensor  # noqa: E402
from unstall.blaming.supervise import Ended  # noqa: E402
from unstall.blaming.verdict import verdict  # noqa: E402
from unstall.launching.launch import Exit  # noqa: E402

GATHER = "_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb"
ILLEGAL, FAILED, WAITS = 700, 719, "cuStreamSynchronize"


def ran(on: Device, lines: list[str], error: int, found: CoreDump | None = None) -> BlameResult:
    """What is told of a program of these lines whose last line notices this error."""
    on.refuses = True  # so no mark stands between lines
    source = "\n".join([*lines, f"error({error}, {WAITS!r})"])
    exec(compile(source, PROGRAM, "exec"), {"work": _blame.work, "error": _blame.error, "put": on.launched})
    return verdict(on.ring(), dump=found)


def lines_of(result: BlameResult) -> list[list[int]]:
    """For each suspect its line, then the other lines."""
    return [
        [suspect.where.line, *(other.line for other in suspect.others)] for suspect in result.suspects if suspect.where
    ]


LINES = [kernel(0, "add"), kernel(0, "scale"), kernel(0, "mul")]


def test_without_a_dump_all_lines_are_left() -> None:
    with device() as on:
        assert lines_of(ran(on, LINES, ILLEGAL)) == [[1, 2, 3]]


def test_of_lines_without_a_mark_between_them_the_one_that_launched_the_kernel_is_left() -> None:
    with device() as on:
        assert lines_of(ran(on, LINES, ILLEGAL, dump("illegal"))) == [[2]]


def test_of_streams_the_one_that_ran_the_kernel_is_left() -> None:
    with device() as on:
        assert lines_of(ran(on, [kernel(1, "gemm"), kernel(2, "scale")], ILLEGAL, dump("illegal"))) == [[2]]


def test_two_lines_that_launched_the_kernel_are_both_left() -> None:
    with device() as on:
        assert lines_of(ran(on, [*LINES, kernel(0, "scale")], ILLEGAL, dump("illegal"))) == [[2, 4]]


def test_an_instance_of_a_template_is_known_by_its_linked_name() -> None:
    other = GATHER.replace("Li16E", "Li8E")
    with device() as on:
        assert lines_of(ran(on, [kernel(0, other), kernel(0, GATHER)], FAILED, dump("assert"))) == [[2]]


def test_a_kernel_is_known_by_the_part_of_a_long_name_that_is_kept() -> None:
    long = "k" * 1500
    exception = DeviceException(code=14, name="", words="", error=700)
    found = CoreDump(grids=(Grid(kernel=long, linked=long, exception=exception),))
    with device() as on:
        assert lines_of(ran(on, [kernel(0, "add"), kernel(0, long)], ILLEGAL, found)) == [[2]]


def test_a_kernel_that_no_line_launched_leaves_all_lines() -> None:
    with device() as on:
        assert lines_of(ran(on, [kernel(0, "add"), kernel(0, "mul")], ILLEGAL, dump("illegal"))) == [[1, 2]]


def test_an_exception_of_no_kernel_leaves_all_lines() -> None:
    lost = CoreDump(
        grids=(Grid(kernel="scale"), Grid(kernel="mul")),
        elsewhere=(DeviceException(code=10, name="Device Illegal Address", words="", error=700),),
    )
    with device() as on:
        assert lines_of(ran(on, LINES, ILLEGAL, lost)) == [[1, 2, 3]]


def test_the_kernels_of_other_lines_are_data() -> None:
    with device() as on:
        (suspect,) = ran(on, LINES, ILLEGAL).suspects
    assert suspect.others_work == (("scale",), ("mul",))


def tensors_after(lines: list[str]) -> tuple[Tensor, ...]:
    """The tensors that are told after the join, if the first run found some at the first line."""
    tensors = (Tensor(name="x", shape=(1,), dtype="float32", device="cuda:0"),)
    with device() as on:
        first = msgspec.structs.replace(ran(on, lines, ILLEGAL), tensors=tensors)
        told = joined(Ended(Exit(1), first, ring=on.ring()), Found(dump=dump("illegal")))
    assert told is not None
    assert told.dump is not None
    return told.tensors


def test_tensors_of_the_line_that_is_left_are_still_told() -> None:
    assert [tensor.name for tensor in tensors_after([kernel(0, "scale"), kernel(0, "add")])] == ["x"]


def test_tensors_of_a_line_that_did_not_fail_are_not_told() -> None:
    assert tensors_after([kernel(0, "add"), kernel(0, "scale")]) == ()
