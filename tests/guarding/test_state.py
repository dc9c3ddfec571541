"""What a guard says of a wait: the line, the operator, the way out, and how long it was."""

from __future__ import annotations

import linecache
import warnings
from types import FunctionType
from typing import Any

import pytest

import unstall
from unstall.guarding.kinds import KINDS, Kind
from unstall.guarding.state import on_wait
from unstall.guarding.wait import SyncWarning, Wait
from unstall.ways_to_wait import WAYS


def seen(kind: Kind, *operators: str, duration_ns: int | None = 1_000) -> Wait:
    """The wait as a guard sees it."""
    with unstall.no_sync("count") as guard:
        pending = on_wait(kind, operators)
        assert pending is not None
        pending.waited(duration_ns)
    return guard.waits[0]


def run_as(file: str, source: str, **names: Any) -> None:
    """Runs source as if it stood in this file."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)


def said(
    source: str, file: str = "/home/me/train.py", *, kind: Kind = "value", operators: tuple[str, ...] = ()
) -> Wait:
    """What a guard says of the wait that `wait` in this source is."""

    def wait(*_: object) -> None:
        pending = on_wait(kind, operators)
        assert pending is not None
        pending.waited(None)

    # A built-in function has no frame.
    framework = FunctionType(
        wait.__code__.replace(co_filename="/lib/python3.11/site-packages/torch/_ops.py"),
        wait.__globals__,
        "wait",
        closure=wait.__closure__,
    )
    with unstall.no_sync("count") as guard:
        run_as(file, source, wait=framework)
    return guard.waits[0]


def test_a_message_names_the_line_the_call_the_operator_and_the_way_out() -> None:
    wait = said("loss = 1\nwait(loss)\n", operators=("aten::item", "aten::_local_scalar_dense"))
    assert str(wait) == (
        "/home/me/train.py:2: wait(loss) waits for the GPU (aten::item → copy of a value to the CPU). Keep the tensors "
        "(.detach()) and read them together every N steps (torch.stack(kept).tolist()), or read each of them one step "
        "later (unstall.MetricBuffer); do not add them up on the device: each addition is a launch."
    )


def test_the_line_is_that_of_the_function_that_waits() -> None:
    wait = said("def step(loss):\n    return wait(loss)\n\nstep(1)\n")
    assert (wait.where, wait.function) == ("/home/me/train.py:2", "step")


def test_a_line_of_a_library_comes_with_the_programs_own() -> None:
    library = "/venv/lib/python3.11/site-packages/transformers/trainer.py"
    run: list[Wait] = []
    names: dict[str, Any] = {"said": said, "run": run, "library": library}
    run_as("/home/me/train.py", "\nrun.append(said('wait()', library))\n", **names)
    # The innermost frame of a program's own: this file, which runs the library's.
    assert (run[0].where, run[0].called_from.rpartition(":")[0]) == (
        "transformers/trainer.py:1",
        "tests/guarding/test_state.py" if run[0].called_from.startswith("tests") else __file__,
    )


def test_a_wait_has_the_rule_that_finds_it_in_a_report() -> None:
    assert seen("value", "aten::is_nonzero", "aten::item").rule == "sync-bool"


def test_the_outermost_operator_that_is_known_to_wait_is_named() -> None:
    assert seen("value", "mine::op", "aten::item", "aten::_local_scalar_dense").operator == "aten::item"


def test_the_operator_of_a_backward_pass_is_named() -> None:
    engine = ("autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "aten::mm")
    assert seen("malloc", *engine).operator == "aten::mm"


def test_a_call_of_several_lines_is_shown_on_one() -> None:
    assert said("wait(\n    1,\n    2,\n)\n").code == "wait( 1, 2, )"


def test_of_a_statement_the_first_line_is_shown() -> None:
    assert said("for value in iter(wait, None):\n    value\n").code == "for value in iter(wait, None)"


def test_a_long_call_is_not_shown() -> None:
    wait = said(f"wait('{'x' * 80}')\n", operators=("aten::item",))
    assert str(wait).startswith("/home/me/train.py:1: aten::item waits for the GPU (aten::item → ")


def test_without_a_known_operator_the_outermost_one_is_named() -> None:
    wait = seen("value", "mine::op", "mine::inner")
    assert (wait.operator, wait.rule) == ("mine::op", "sync-item")


@pytest.mark.parametrize(
    ("kind", "operator", "rule"),
    [
        ("device", "torch.cuda.synchronize", "sync-explicit"),
        ("stream", "torch.cuda.Stream.synchronize", "sync-explicit"),
        ("event", "torch.cuda.Event.synchronize", "sync-explicit"),
        ("free", "torch.cuda.empty_cache", "allocator-churn"),
    ],
)
def test_a_call_without_an_operator_is_named(kind: Kind, operator: str, rule: str) -> None:
    wait = seen(kind)
    assert (wait.operator, wait.rule) == (operator, rule)


def test_freeing_for_an_operator_is_not_a_call_of_empty_cache() -> None:
    assert "empty_cache" in seen("free").advice
    assert "empty_cache" not in seen("free", "aten::empty").advice


def test_an_upload_of_python_values_is_told_from_one_of_a_tensor() -> None:
    assert said("wait(1)", kind="upload", operators=("aten::to",)).rule == "pageable-copy"
    assert said("tensor = wait\ntensor(1)", kind="upload", operators=("aten::to",)).rule == "sync-tensor"


def test_an_operator_that_is_not_known_is_told_by_the_call() -> None:
    with unstall.no_sync("count") as guard:
        run_as("/home/me/train.py", "item('stream').waited(1)", item=on_wait)
    assert guard.waits[0].operator == "aten::item"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_way_out(kind: Kind) -> None:
    wait = seen(kind, "mine::op")
    assert wait.advice != WAYS[-1].fix or kind in ("stream", "event", "device")
    assert str(wait).endswith(f"{wait.advice[1:]}.")


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (999, "1 µs"),
        (1_500, "1 µs"),
        (2_400, "3 µs"),
        (64_000, "30 µs"),
        (70_000, "100 µs"),
        (3_100_000_000, "3 s"),
    ],
)
def test_a_wait_that_is_over_says_about_how_long_it_was(duration_ns: int, text: str) -> None:
    assert f" waited about {text} for the GPU " in str(seen("value", "aten::item", duration_ns=duration_ns))


def test_a_warning_is_at_the_line_that_waits() -> None:
    def wait() -> None:
        pending = on_wait("value", "aten::item")
        assert pending is not None
        pending.waited(1_000)

    with unstall.no_sync("warn") as guard, pytest.warns(SyncWarning, match="waited about 1 µs for the GPU") as warned:
        wait()
    line = wait.__code__.co_firstlineno + 1
    assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]
    assert [each.line for each in guard.waits] == [line]


def test_a_warning_has_the_wait() -> None:
    with unstall.no_sync("warn"):
        pending = on_wait("device")
    assert pending is not None
    with pytest.warns(SyncWarning) as warned:
        pending.waited(2_000)
    message = warned[0].message
    assert isinstance(message, SyncWarning)
    assert message.wait is not None
    assert (message.wait.kind, message.wait.duration_ns) == ("device", 2_000)


def test_each_wait_is_counted_though_python_shows_a_warning_once_for_a_line() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        with unstall.no_sync("warn") as guard:
            for step in range(5):
                pending = on_wait("value", "aten::item")
                assert pending is not None
                pending.waited(1_000 + step)
    assert (len(shown), guard.count) == (1, 5)


def test_a_warning_that_is_an_error_is_raised_and_counted() -> None:
    with unstall.no_sync("warn") as guard:
        pending = on_wait("value", "aten::item")
        assert pending is not None
        with pytest.raises(SyncWarning):  # as pytest is set up here
            pending.waited(1_000)
    assert guard.count == 1
