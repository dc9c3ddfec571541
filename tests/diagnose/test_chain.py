"""Chains of calls, from a line to the device: what was recorded, link by link."""

from __future__ import annotations

import pytest
from traces import TraceBuilder

from unstall.answers.chain import ShownChains
from unstall.answers.explain import explain
from unstall.answers.report import Report
from unstall.diagnose.chain import Chain
from unstall.errors import UsageError
from unstall.locate.torch_sources import source_files

_NATIVE = "aten/src/ATen/native"


def _uploads() -> TraceBuilder:
    """Three steps, each with an upload of 1 MiB from pageable memory, and a kernel of another line."""
    trace = TraceBuilder()
    for us in (50, 900, 70):
        with trace.step():
            with trace.frame("train.py", 41, "step"), trace.op("aten::to"), trace.op("aten::_to_copy"):
                trace.work(10)
                with trace.op("aten::copy_"):
                    trace.copy("HtoD", us, memory="Pageable", size=1 << 20)
            with trace.frame("train.py", 50, "other"), trace.op("aten::mm"):
                trace.launch("gemm", device_us=5)
                trace.launch("splitk", device_us=7)
    return trace


def _chains(trace: TraceBuilder, at: str) -> tuple[Chain, ...]:
    return ShownChains.of(explain(trace.timeline()), at).chains.chains


def test_a_copy_is_followed_from_its_line_to_the_device() -> None:
    (chain,) = _chains(_uploads(), "train.py:41")

    assert [(link.depth, link.kind, link.name) for link in chain.links] == [
        (0, "line", "train.py:41 def step"),
        (1, "operator", "aten::to"),
        (2, "operator", "aten::_to_copy"),
        (3, "operator", "aten::copy_"),
        (4, "call", "cudaMemcpyAsync"),
        (5, "device", "Memcpy HtoD (Pageable -> Device)"),
    ]
    assert (chain.count, chain.links[-1].bytes) == (3, 1 << 20)


def test_its_times_are_those_of_the_median_occurrence_and_own_times_add_up() -> None:
    (chain,) = _chains(_uploads(), "train.py:41")
    to, to_copy, copy, call, device = chain.links[1:]

    assert device.takes_ns == 70_000
    assert to_copy.own_ns == 10_000 + 2_000  # the work, and what it takes to enter and leave the copy
    assert to.takes_ns == sum(link.own_ns or 0 for link in (to, to_copy, copy, call))
    assert device.after_ns is not None
    assert 0 < device.after_ns < 70_000


def test_torchs_files_are_named_where_they_were_looked_up_and_nowhere_else() -> None:
    (chain,) = _chains(_uploads(), "train.py:41")

    assert [link.files for link in chain.links] == [
        (),
        (f"{_NATIVE}/TensorConversions.cpp",),
        (f"{_NATIVE}/TensorConversions.cpp",),
        (f"{_NATIVE}/Copy.cpp", f"{_NATIVE}/cuda/Copy.cu"),
        (),
        (),
    ]
    assert source_files("aten::mm") == ()
    assert source_files("<built-in method to of Tensor object>") == (
        "tools/autograd/templates/python_variable_methods.cpp",
    )
    assert source_files("<built-in method to of Thing object>") == ()


def test_an_operator_with_several_kernels_is_one_chain() -> None:
    (chain,) = _chains(_uploads(), "train.py:50")

    assert chain.count == 3
    assert [link.name for link in chain.links] == [
        "train.py:50 def other",
        "aten::mm",
        "cudaLaunchKernel",
        "gemm",
        "cudaLaunchKernel",
        "splitk",
    ]


def test_the_wait_of_an_operator_is_a_link_beside_its_copy() -> None:
    trace = TraceBuilder()
    for _ in range(2):
        with trace.step(), trace.frame("train.py", 7, "step"):
            trace.launch(device_us=90)
            trace.item()
    chains = _chains(trace, "train.py:7")
    (item,) = [chain for chain in chains if any(link.name == "aten::item" for link in chain.links)]

    names = [link.name for link in item.links]
    assert names[-3:] == ["cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", "cudaStreamSynchronize"]
    assert item.links[-1].depth == item.links[-3].depth


def test_frames_of_torch_below_the_line_are_links() -> None:
    trace = TraceBuilder()
    for _ in range(2):
        with (
            trace.step(),
            trace.frame("train.py", 7, "step"),
            trace.frame("torch/nn/modules/linear.py", 120, "forward"),
            trace.op("aten::linear"),
        ):
            trace.launch("gemm", device_us=5)
    (chain,) = _chains(trace, "train.py:7")

    assert [link.kind for link in chain.links] == ["line", "frame", "operator", "call", "device"]
    assert "linear.py" in chain.links[1].name
    assert chain.links[1].takes_ns is not None


def test_a_finding_is_named_by_its_number() -> None:
    report = explain(_uploads().timeline())
    number = next(str(i) for i, finding in enumerate(report.result.costly, 1) if finding.rule == "pageable-copy")

    assert ShownChains.of(report, number).chains.at == "train.py:41"


def test_a_report_shows_the_chain_in_80_columns() -> None:
    text = str(ShownChains.of(explain(_uploads().timeline()), "train.py:41"))

    assert "3x, the median one" in text
    assert f"   {_NATIVE}/TensorConversions.cpp" in text.splitlines()
    assert "    └ aten::copy_" in text
    assert "1.00 MiB, stream 7," in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("at", "said"), [("train.py:99", "launches nothing"), ("other.py:41", "launches nothing"), ("77", "no finding")]
)
def test_what_has_no_chain_is_told(at: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _chains(_uploads(), at)


def test_a_saved_result_has_no_chain() -> None:
    report = explain(_uploads().timeline())
    with pytest.raises(UsageError, match="holds no events"):
        ShownChains.of(Report(report.result, None), "train.py:41")
