"""What a capture needs first is in its advice."""

from __future__ import annotations

import inspect

import pytest
from findings import only, result_of
from traces import TraceBuilder

from unstall.diagnose.before_capture import CAPTURABLE, COUNTS_NO_STEPS
from unstall.result import Finding


def steps(*, optimizer: str | None = None, waits: bool = True, steps: int = 3) -> TraceBuilder:
    """Each step launches 24 short kernels around a wait for a value, and perhaps steps an optimizer."""
    trace = TraceBuilder()
    for _ in range(steps):
        with trace.step(), trace.frame("train.py", 9, "main"), trace.frame("train.py", 12, "train"):
            for number in range(24):
                with trace.op("aten::relu"):
                    trace.launch(f"kernel_{number}", 3)
                if number == 12 and waits:
                    trace.item()
            if optimizer:
                with trace.optimizer(optimizer), trace.op("aten::add"):
                    trace.launch("add", 3)
    return trace


def capture(trace: TraceBuilder) -> tuple[Finding, list[Finding]]:
    findings = [each for each in result_of(trace).findings if not each.harmless]
    return next(each for each in findings if each.rule == "launch-bound"), findings


def test_a_wait_inside_is_to_be_removed_first_and_named_by_its_number() -> None:
    finding, findings = capture(steps())
    number = [each.rule for each in findings].index("sync-item") + 1
    assert finding.fix.startswith(
        f"first finding {number} (train.py:12 aten::item): a graph cannot contain it; then capture these operators"
    )


def test_all_waits_inside_are_named_by_number_however_many_lines_they_are_on() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 9, "main"), trace.frame("train.py", 12, "train"):
            for line in range(12, 20):
                for number in range(24):
                    with trace.op("aten::relu"):
                        trace.launch(f"kernel_{line}_{number}", 3)
                with trace.frame("model.py", line, f"part_{line}"):
                    trace.item()
    fix = only(trace, "launch-bound").fix
    assert "finding 4 (model.py:14 aten::item) and findings 5, 6, 7 and 8: a graph cannot contain them; then" in fix


def test_waits_of_lbfgs_itself_stay_and_its_closure_is_captured() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with (
            trace.step(),
            trace.frame("train.py", 9, "train"),
            trace.optimizer("LBFGS"),
            trace.frame("torch/optim/lbfgs.py", 358, "step"),
        ):
            with trace.frame("train.py", 5, "closure"):
                for number in range(24):
                    with trace.op("aten::relu"):
                        trace.launch(f"kernel_{number}", 3)
            trace.item()
            for number in range(24):
                with trace.op("aten::mul"):
                    trace.launch(f"update_{number}", 3)
    finding, findings = capture(trace)
    wait = next(each for each in findings if each.rule == "sync-item")
    assert wait.edit is None
    assert wait.fix.startswith("these waits are torch's own, and no option of LBFGS removes them")
    assert finding.fix.startswith("put what the closure computes (zero_grad, the loss, backward) into a function")
    assert "leave its step outside" not in finding.fix


def test_without_a_wait_inside_nothing_comes_first() -> None:
    finding, _ = capture(steps(waits=False))
    assert finding.fix.startswith("capture these operators")


def test_a_wait_outside_of_the_captured_function_does_not_block() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 9, "main"):
            with trace.frame("train.py", 12, "train"):
                for number in range(24):
                    with trace.op("aten::relu"):
                        trace.launch(f"kernel_{number}", 3)
            trace.item()
    assert only(trace, "launch-bound").where.function == "train"
    assert only(trace, "launch-bound").fix.startswith("capture these operators")


def test_of_waits_at_one_line_those_without_a_number_are_counted() -> None:
    """The device works through one of the two waits."""
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "train"):
            for number in range(24):
                with trace.op("aten::relu"):
                    trace.launch(f"kernel_{number}", 3)
            trace.item()
            with trace.op("aten::cumsum"):
                event = trace.record()
                trace.launch("scan", 2_000)
                trace.event_sync(event)
            with trace.op("aten::relu"):
                trace.launch("tail", 3)
    said = "first finding 1 and 1 wait that costs nothing (train.py:12): a graph cannot contain them; then"
    assert only(trace, "launch-bound").fix.startswith(said)


@pytest.mark.parametrize(
    "frame",
    [
        ("transformers/masking_utils.py", 331, "_ignore_bidirectional_mask_sdpa"),
        ("torch/nn/modules/_functions.py", 98, "SyncBatchNorm.forward"),
    ],
)
def test_a_wait_that_its_library_leaves_out_in_captures_does_not_block(frame: tuple[str, int, str]) -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "train"):
            for number in range(24):
                with trace.op("aten::relu"):
                    trace.launch(f"kernel_{number}", 3)
                if number == 12:
                    with trace.frame(*frame):
                        trace.item()
    finding, findings = capture(trace)
    assert any(each.rule in ("sync-item", "sync-mask") for each in findings)
    assert finding.fix.startswith("capture these operators")


def test_an_upload_inside_blocks_too() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::to"):
                trace.copy("HtoD", 30, memory="Pageable", size=1 << 20)
                trace.sync()
            for number in range(24):
                with trace.op("aten::relu"):
                    trace.launch(f"kernel_{number}", 3)
    assert "(train.py:12 aten::to): a graph cannot contain it; then" in only(trace, "launch-bound").fix


def test_all_that_the_optimizer_needs_is_said_at_once() -> None:
    finding, _ = capture(steps(optimizer="AdamW"))
    assert (
        "make the optimizer with capturable=True, which rounds a little differently, and with "
        "lr=torch.tensor(…, device='cuda') if a scheduler changes "
        "the learning rate" in finding.fix
    )


def test_sgd_needs_a_rate_alone() -> None:
    finding, _ = capture(steps(optimizer="SGD"))
    assert "capturable" not in finding.fix
    assert "lr=torch.tensor(…, device='cuda') and fused=True" in finding.fix


def test_an_optimizer_that_cannot_be_captured_stays_outside() -> None:
    finding, _ = capture(steps(optimizer="Adagrad"))
    assert "if the optimizer cannot be made with capturable=True, leave its step outside" in finding.fix


def test_no_optimizer_inside_needs_nothing() -> None:
    finding, _ = capture(steps())
    assert "optimizer" not in finding.fix


def test_a_function_around_the_steps_is_not_captured_but_cut() -> None:
    """`main` is called once, around three steps; `train` three times."""
    trace = TraceBuilder()
    with trace.frame("train.py", 9, "main"):
        for _ in range(3):
            with trace.step():
                for number in range(24):
                    with trace.op("aten::relu"):
                        trace.launch(f"kernel_{number}", 3)
    assert only(trace, "launch-bound").fix.startswith("put what each step does here into a function")
    assert capture(steps(waits=False))[0].fix.startswith("capture these operators")


def by_line(loader: bool) -> TraceBuilder:
    """A recording that knows lines, and not how often their function was called."""
    trace = TraceBuilder(unstall={"schema": "unstall.recording/1", "recorder": "cupti", "lines": "exact"})
    for _ in range(3):
        with trace.step():
            if loader:
                with trace.frame("train.py", 8, "main"):
                    trace.next_batch(20)
            for number in range(24):
                with trace.frame("train.py", 9, "main"), trace.op("aten::relu"):
                    trace.launch(f"kernel_{number}", 3)
    return trace


def test_a_function_that_asks_for_the_batches_is_cut() -> None:
    fix = only(by_line(loader=True), "launch-bound").fix
    assert fix.startswith("put what each step does here (train.py:9) into a function, and capture that in a CUDA graph")


def test_a_function_that_may_hold_the_loop_is_cut_if_it_does() -> None:
    fix = only(by_line(loader=False), "launch-bound").fix
    assert "into a function, unless main is that already, and capture it in a CUDA graph" in fix


def test_the_installed_torch_takes_capturable_as_is_said() -> None:
    optim = pytest.importorskip("torch.optim")
    classes = {name.lower(): each for name, each in vars(optim).items() if inspect.isclass(each)}
    takes = {name for name, each in classes.items() if "capturable" in inspect.signature(each).parameters}
    assert takes == CAPTURABLE
    assert set(classes) >= COUNTS_NO_STEPS
