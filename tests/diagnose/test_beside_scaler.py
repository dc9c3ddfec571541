"""A GradScaler decides on the host whether to step: of such a step, the model alone is advised to be captured."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from findings import found, only, result_of
from processes import succeeded
from traces import TraceBuilder
from what_if.made import edited, subject_of

from unstall.result import Result

_PROGRAM = Path(__file__).parent / "programs" / "scaled.py"
_MODULE_CALL = ("torch/nn/modules/module.py", 1787, "_call_impl")
_SCALER = "torch/amp/grad_scaler.py"
STEPS = 4


def small(trace: TraceBuilder, name: str, count: int) -> None:
    for number in range(count):
        with trace.op("aten::mul"):
            trace.launch(f"{name}_{number}", 2)


def scaled(
    *, scales: bool = True, model: bool = True, graphed: bool = False, apart: bool = False, gpu: str = "NVIDIA H200"
) -> TraceBuilder:
    """Steps of a model of `train.py`, whose optimizer a scaler calls if `scales` is True. If `apart` is True, the
    optimizer's are many tiny kernels.
    """
    trace = TraceBuilder(launch_us=20, devices=(gpu,))
    with trace.frame("train.py", 1, "<module>"):
        for _ in range(STEPS):
            with trace.step(), trace.frame("train.py", 5, "step"):
                if graphed:
                    with trace.frame("unstall/fix/graphs/guarded_graph.py", 90, "GuardedGraph.replayed"):
                        trace.graph([20, 20])
                elif model:
                    with trace.frame(*_MODULE_CALL), trace.frame("net.py", 3, "Net.forward"):
                        small(trace, "model", 20)
                else:
                    small(trace, "loss", 20)
                with trace.frame(_SCALER if scales else "train.py", 420, "step"):
                    with trace.op("aten::_amp_foreach_non_finite_check_and_unscale_" if scales else "aten::mul"):
                        trace.launch("unscale", 2)
                    with trace.optimizer("AdamW"):
                        if apart:
                            for _ in range(40):
                                with trace.op("aten::addcdiv_"):
                                    trace.launch("adam", 2)
                        else:
                            small(trace, "adam", 10)
    return trace


def test_without_a_scaler_the_whole_step_is_captured() -> None:
    finding = only(scaled(scales=False), "launch-bound")
    assert finding.edit == "graph:train.py:step"
    assert "GradScaler" not in finding.fix


def test_with_one_it_is_the_model_and_needs_nothing_of_the_optimizer() -> None:
    finding = only(scaled(), "launch-bound")
    assert finding.edit == "graph:net.py:Net.forward"
    assert finding.fix.startswith("capture the model alone in a CUDA graph: model.forward = unstall.graphed(")
    assert "capturable" not in finding.fix


@pytest.mark.parametrize(("gpu", "has_bfloat16"), [("NVIDIA H200", True), ("Tesla T4", False)])
def test_bfloat16_is_advised_only_if_the_gpu_multiplies_in_it(gpu: str, has_bfloat16: bool) -> None:
    assert ("in bfloat16" in only(scaled(gpu=gpu), "launch-bound").fix) == has_bfloat16
    trace = TraceBuilder(devices=(gpu,))
    with trace.frame("train.py", 12, "train"), trace.frame(_SCALER, 340, "_maybe_opt_step"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 100)
        trace.item()
    fix = only(trace, "sync-grad-scaler").fix
    assert ("train in bfloat16" in fix) == has_bfloat16
    assert "build the optimizer with fused=True" in fix


def test_once_the_model_is_captured_no_other_graph_is_promised() -> None:
    result = result_of(scaled(graphed=True))
    (finding,) = (each for each in result.findings if each.rule == "launch-bound")
    assert finding.fix.startswith("the model already runs as a CUDA graph, and none can contain the rest: GradScaler")
    assert (finding.edit, result.plan) == (None, ())


def test_without_a_model_a_function_is_to_be_made() -> None:
    finding = only(scaled(model=False), "launch-bound")
    assert finding.fix.startswith("put what computes the loss into a function, and capture that")
    assert "capturable" not in finding.fix
    assert finding.edit == "graph:train.py:step"


def test_tiny_kernels_of_an_optimizer_that_a_scaler_calls_are_captured_by_no_graph() -> None:
    (finding,) = found(scaled(apart=True), "tiny-kernels")
    assert "no CUDA graph can contain them, as GradScaler decides on the host" in finding.fix
    assert finding.edit is None


def test_a_graph_that_is_asked_for_leaves_the_scaler_out() -> None:
    made = edited(subject_of(scaled()), "graph:train.py:step")
    assert len(made.graphs) == STEPS  # that of the model
    assert edited(subject_of(scaled(scales=False)), "graph:train.py:step").notes == made.notes == ()


@pytest.mark.slow
def test_the_plans_promise_is_what_the_mended_program_takes(tmp_path: Path) -> None:
    def run(*arguments: str) -> Result:
        report = tmp_path / "report.json"
        command = ["-m", "unstall", "run", "--gpu", "h200", "--format", "json", "-o", str(report), str(_PROGRAM)]
        succeeded([sys.executable, *command, *arguments], cwd=tmp_path)
        return msgspec.json.decode(report.read_bytes(), type=Result)

    plan = run().plan
    assert plan
    assert plan[-1].step_ns == pytest.approx(run("graphed").steps.mean_ns, rel=0.15)
