"""What frameworks' own options do against findings."""

from __future__ import annotations

import inspect
import re
from contextlib import ExitStack

import pytest
from findings import only, result_of
from traces import TraceBuilder

from unstall.locate.frameworks import FRAMEWORKS, Framework

# timm needs a torchvision that fits torch, and there is none for the tests' torch: its names were looked up in 1.0.
NAMES = sorted(
    {
        name
        for framework in FRAMEWORKS
        for option in framework.options
        for name in option.names
        if framework.name != "timm"
    }
)
TRAINER = "transformers/trainer.py"


@pytest.mark.parametrize("name", NAMES)
def test_the_installed_package_has_what_is_advised(name: str) -> None:
    """Of transformers, some classes exist only where the package that they need is installed, too."""
    match = re.fullmatch(r"(?P<module>[\w.]+):(?P<object>[\w.]+)(?:\((?P<parameter>\w+)\))?", name)
    assert match
    pytest.importorskip(match["module"].partition(".")[0])
    found: object = pytest.importorskip(match["module"], exc_type=ImportError)
    owner, _, attribute = match["object"].partition(".")
    found = getattr(found, owner)
    if attribute and not match["parameter"]:
        # Some options are attributes that an object sets when it is made, as those of GenerationConfig.
        assert hasattr(found, attribute) or hasattr(found(), attribute)  # type: ignore[operator]
    found = getattr(found, attribute, found) if attribute else found
    if parameter := match["parameter"]:
        assert parameter in inspect.signature(found).parameters  # type: ignore[arg-type]


def trained(*functions: str, file: str = TRAINER, kernels: int = 0) -> TraceBuilder:
    """Three steps of a Trainer that the user calls at train.py:30; a value is read within the given functions."""
    trace = TraceBuilder()
    with trace.frame("train.py", 30, "main"), trace.frame(TRAINER, 1408, "train"):
        for _ in range(3):
            with trace.step(), ExitStack() as frames:
                for line, function in enumerate(functions, 1):
                    frames.enter_context(trace.frame(file, line, function))
                for number in range(kernels):
                    trace.launch(f"kernel_{number}", 3)
                trace.launch("gemm", 100)
                trace.item()
                trace.work(50)
    return trace


def advice(trace: TraceBuilder, rule: str = "sync-item") -> str:
    return only(trace, rule).fix


def test_a_value_that_the_trainer_reads_is_turned_off_by_its_option() -> None:
    assert "logging_nan_inf_filter=False" in advice(trained("_run_epoch"))
    assert "logging_steps" in advice(trained("_run_epoch", "_maybe_log_save_evaluate"))


def test_a_library_of_which_no_option_is_known_is_left_as_it_is() -> None:
    text = advice(trained("step", file="peft/tuners/lora.py"))
    assert text.startswith(
        "leave peft as it is, and change what your line train.py:30 passes to it or calls, or override step in a class "
        "of your own, so as to: keep the tensors"
    )


def test_what_a_callback_of_the_users_reads_is_the_users() -> None:
    assert advice(trained("on_step_end", file="callbacks.py")).startswith("keep the tensors")


def test_files_that_the_user_names_are_the_users() -> None:
    (finding,) = [
        each
        for each in result_of(trained("step", file="peft/tuners/lora.py"), user=["peft/*"]).findings
        if each.rule == "sync-item"
    ]
    assert finding.fix.startswith("keep the tensors")


def test_a_trainers_loop_is_not_captured_but_the_model_that_it_calls() -> None:
    text = advice(trained("training_step", kernels=24), "launch-bound")
    assert "model.forward = unstall.graphed(model.forward)" in text
    assert "capture it" not in text


def around_a_graphed_model(*, other_model: int = 0) -> TraceBuilder:
    """Steps of a Trainer whose model runs by unstall.graphed, with 24 launches around it, and some of another model."""
    trace = TraceBuilder()
    with trace.frame("train.py", 30, "main"), trace.frame(TRAINER, 1408, "train"):
        for _ in range(3):
            with trace.step(), trace.frame(TRAINER, 1939, "_run_epoch"):
                with trace.frame("unstall/fix/graphs/guarded_graph.py", 90, "GuardedGraph.replayed"):
                    trace.graph([20, 20])
                with (
                    trace.frame("torch/nn/modules/module.py", 1751, "Module._call_impl"),
                    trace.frame("other.py", 8, "Other.forward"),
                ):
                    for number in range(other_model):
                        trace.launch(f"other_{number}", 3)
                for number in range(24):
                    trace.launch(f"kernel_{number}", 3)
                trace.item()
    return trace


def test_a_graph_of_the_model_is_not_advised_twice_and_nothing_is_promised_for_it() -> None:
    result = result_of(around_a_graphed_model())
    (finding,) = (each for each in result.findings if each.rule == "launch-bound")
    assert finding.fix.startswith("the model already runs by unstall.graphed; what is left is the framework's own code")
    assert (finding.edit, finding.gain_ns) == (None, None)
    assert not any(step.edit.startswith("graph") for step in result.plan or ())


def test_another_model_beside_the_graphed_one_is_advised_a_graph() -> None:
    finding = only(around_a_graphed_model(other_model=48), "launch-bound")
    assert "model.forward = unstall.graphed(model.forward)" in finding.fix
    assert (finding.edit or "").startswith("graph:")


LIGHTNING = "lightning/pytorch/loops/optimization/automatic.py"


def trained_by_lightning(*, forward: str, file: str, metric: int = 0, average: int = 0) -> TraceBuilder:
    """Steps of Lightning's loop, whose `training_step` calls a network of 24 launches, and a metric. A hook of the
    user's then averages weights.
    """
    trace = TraceBuilder()
    with trace.frame("train.py", 30, "<module>"), trace.frame(LIGHTNING, 192, "run"):
        for _ in range(3):
            with trace.step(), trace.frame("torch/optim/adam.py", 227, "Adam.step"):
                with trace.frame("train.py", 12, "Net.training_step"):
                    call = trace.frame("torch/nn/modules/module.py", 1751, "Module._call_impl")
                    with call, trace.frame(file, 253, forward):
                        launched(trace, "net", 24)
                    with trace.frame("torchmetrics/functional/stat_scores.py", 433, "_update"):
                        launched(trace, "metric", metric)
                launched(trace, "adam", 4)
            with trace.frame("train.py", 20, "Net.on_train_batch_end"):
                launched(trace, "lerp", average, kinds=1)
    return trace


def launched(trace: TraceBuilder, name: str, count: int, *, kinds: int = 100) -> None:
    for number in range(count):
        trace.launch(f"{name}_{number % kinds}", 2)


@pytest.mark.parametrize("metric", [4, 24])
def test_the_gain_is_that_of_the_model_that_the_advice_is_about(metric: int) -> None:
    """Also if the network is torch's, and if a metric makes as many launches."""
    gains = []
    for file, forward, line in (
        ("train.py", "Net.forward", 253),
        ("torch/nn/modules/container.py", "Sequential.forward", 12),
    ):
        finding = only(trained_by_lightning(forward=forward, file=file, metric=metric), "launch-bound")
        assert "self.net.forward = unstall.graphed(self.net.forward)" in finding.fix
        assert (finding.edit, finding.where.line, finding.count) == (f"graph:{file}:{forward}", line, 3 * 24)
        gains.append(finding.gain_ns)
    assert gains[0] == gains[1]


def test_a_model_that_an_optimizer_calls_needs_nothing_of_the_optimizer() -> None:
    """Lightning's closure runs within the optimizer's step."""
    finding = only(trained_by_lightning(forward="Net.forward", file="train.py"), "launch-bound")
    assert "capturable" not in finding.fix


def test_tiny_kernels_beside_the_model_are_not_mended_by_a_graph_of_the_model() -> None:
    finding = only(trained_by_lightning(forward="Net.forward", file="train.py", average=64), "tiny-kernels")
    assert finding.where.function == "Net.on_train_batch_end"
    assert finding.fix.startswith("fuse them")


def read_by_a_scheduler(*, pipeline: bool) -> TraceBuilder:
    """Steps in which a scheduler of diffusers reads a value, called by a pipeline or by the user's own loop."""
    trace = TraceBuilder()
    loop = "diffusers/pipelines/ddpm/pipeline_ddpm.py" if pipeline else "sample.py"
    with trace.frame("sample.py", 3, "main"), trace.frame(loop, 90, "__call__"):
        for _ in range(3):
            with trace.step():
                trace.launch("gemm", 100)
                with trace.frame("diffusers/schedulers/scheduling_ddpm.py", 400, "step"):
                    trace.item()
                trace.work(50)
    return trace


def test_nothing_is_promised_for_what_only_the_users_own_loop_can_change() -> None:
    inside, own = (only(read_by_a_scheduler(pipeline=each), "sync-item") for each in (True, False))
    assert inside.fix == own.fix
    assert (inside.edit, inside.gain_ns) == (None, None)
    assert own.edit is not None
    assert own.gain_ns


def test_nor_for_what_makes_more_of_a_step_and_not_a_shorter_one() -> None:
    trace = TraceBuilder()
    with trace.frame("chat.py", 3, "main"), trace.frame("transformers/generation/utils.py", 3000, "_sample"):
        for _ in range(3):
            with trace.step():
                trace.launch("gemm", 100)
                trace.item()
                trace.work(50)
    finding = only(trace, "sync-item")
    assert finding.fix.startswith("generate() looks each token")
    assert finding.edit is None


def test_advice_for_a_line_within_a_package_is_to_override_that() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 30, "main"), trace.frame("lightning/pytorch/demos/transformer.py", 78, "forward"):
        for _ in range(3):
            with trace.step(), trace.frame("torch/nn/modules/transformer.py", 1245, "_detect_is_causal_mask"):
                trace.launch("gemm", 100)
                trace.item()
                trace.work(50)
    text = advice(trace)
    assert text.startswith("leave lightning as it is, and change what your line train.py:30 passes to it")
    assert "pass tgt_is_causal" in text


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_each_framework_says_what_its_step_is_and_its_patterns_compile(framework: Framework) -> None:
    assert framework.step
    assert framework.users_line
    for option in framework.options:
        re.compile(option.frame)
        re.compile(option.rules)


def masked(*, by_generate: bool) -> str:
    """The advice on the test of an attention mask: in a step of generate(), or in a call of the model."""
    caller = "transformers/generation/utils.py" if by_generate else "train.py"
    trace = TraceBuilder()
    with trace.frame("train.py", 30, "main"), trace.frame(caller, 2800, "_sample"):
        for _ in range(3):
            with (
                trace.step(),
                trace.frame("transformers/models/gpt2/modeling_gpt2.py", 682, "forward"),
                trace.frame("transformers/masking_utils.py", 269, "_ignore_causal_mask_sdpa"),
            ):
                trace.launch("gemm", 100)
                trace.item()
                trace.work(50)
    return advice(trace)


def test_a_mask_that_generate_makes_is_not_the_users_to_leave_out() -> None:
    assert "give the model no attention_mask" in masked(by_generate=False)
    assert masked(by_generate=True).startswith("generate() hands the model a mask for each token even if you give none")


@pytest.mark.parametrize("file", ["transformers/models/bert/modeling_bert.py", "timm/models/resnet.py", "net.py"])
def test_a_packages_model_is_captured_without_a_change_of_the_package(file: str) -> None:
    trace = TraceBuilder(launch_us=20)
    with trace.frame("train.py", 30, "main"):
        for _ in range(3):
            with (
                trace.step(),
                trace.frame("torch/nn/modules/module.py", 1751, "Module._call_impl"),
                trace.frame(file, 669, "Model.forward"),
            ):
                for number in range(24):
                    trace.launch(f"kernel_{number}", 3)
            trace.item()
    text = advice(trace, "launch-bound")
    what = "these operators in a CUDA graph (unstall.graphed)"
    if file != "net.py":
        what = "the model in a CUDA graph (model.forward = unstall.graphed(model.forward))"
    assert text.startswith(f"capture {what}")
