"""Bytes that are copied to the device again and again, if the recorder knows the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from findings import place
from fix.on_a_gpu import on_virtual_gpu
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.result import Finding, Result
from unstall.timeline.columns import HostKind, Timeline, Uploads


def uploading(contents: Sequence[int], copy_us: float = 400, *, steps: bool = True) -> Result:
    """For each content, in a step or not: a copy of a megabyte, a kernel that needs it, and a wait for the device."""
    trace = TraceBuilder(launch_us=2)
    for _ in contents:
        with trace.step() if steps else nullcontext(), trace.frame("train.py", 12, "train"):
            with trace.frame("train.py", 20, "load"), trace.op("aten::to"):
                trace.copy("HtoD", copy_us, size=1 << 20)
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
            trace.sync("device")
    return explain(known(trace.timeline(), contents)).result


def known(timeline: Timeline, contents: Sequence[int]) -> Timeline:
    calls = np.flatnonzero(timeline.host.kind == HostKind.COPY).astype(np.int32)
    none = np.full(len(calls), -1, np.int32)
    content = np.array(contents, np.int32)
    return replace(timeline, uploads=Uploads(calls, content, none, none, none, none, np.ones(len(calls), np.bool_)))


def of_rule(result: Result) -> list[Finding]:
    return [finding for finding in result.findings if finding.rule == "repeated-upload"]


def test_copies_of_bytes_that_are_there_are_found_at_their_line() -> None:
    (finding,) = of_rule(uploading([1, 2] * 4))
    assert place(finding) == ("train.py", 20, "load")
    assert finding.count == 6
    assert finding.exposed_ns * 8 == pytest.approx(6 * 400_000, rel=0.02)
    assert (
        "6 of 8 copies there repeat bytes that were copied before: 6.00 MiB in all, of 2 different tensors with "
        in (finding.saw)
    )
    assert "the device has room for 2.00 MiB all the time" in finding.safe_if


def test_keeping_them_gains_the_time_of_the_copies_that_repeat() -> None:
    (finding,) = of_rule(uploading([1] * 8))
    assert finding.edit == "keep-on-device:train.py:20:aten::to"
    assert finding.gain_ns == pytest.approx(400_000 * 7 / 8, rel=0.1)


def test_two_steps_that_copy_the_same_bytes_are_a_loop() -> None:
    (finding,) = of_rule(uploading([1, 1]))
    assert "1 of 2 copies there repeat bytes that were copied before" in finding.saw
    assert finding.gain_ns == pytest.approx(200_000, rel=0.1)


def test_two_copies_at_a_line_are_no_loop_if_they_are_of_one_step() -> None:
    assert of_rule(uploading([1, 1], steps=False)) == []
    assert of_rule(uploading([1, 1, 1], steps=False))


@pytest.mark.parametrize("contents", [[1, 2, 3, 1], [1, 2, 1]])
def test_one_copy_that_recurs_among_others_may_be_chance(contents: list[int]) -> None:
    assert of_rule(uploading(contents)) == []


def test_other_bytes_each_time_are_none() -> None:
    assert of_rule(uploading(range(1, 9))) == []


def test_bytes_that_are_not_known_make_no_claim() -> None:
    assert of_rule(uploading([0] * 8)) == []


def test_copies_that_take_next_to_no_time_are_not_worth_a_word() -> None:
    assert of_rule(uploading([1] * 8, copy_us=0.01)) == []


@pytest.mark.slow
def test_the_virtual_gpu_knows_equal_bytes_and_who_uses_them(tmp_path: Path) -> None:
    program = """
import torch
same, other = torch.arange(5.0), torch.arange(12.0).reshape(3, 4).t()
tensors = [same, same.clone(), other, same[:4], same + 1, same.half(), same]
kept = [tensor.to("cuda") for tensor in tensors]
kept[0].add_(kept[6])
"""
    end = """
uploads = gpu.timeline().uploads
print("CONTENT", uploads.content.tolist())
print("USED", (uploads.first_use >= 0).tolist())
"""
    said = on_virtual_gpu(tmp_path, program, end)
    assert "CONTENT [1, 1, 2, 3, 4, 5, 1]" in said
    assert "USED [True, False, False, False, False, False, True]" in said
