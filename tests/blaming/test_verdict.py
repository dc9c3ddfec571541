"""What is said about a fault: its line among others, by whose code and by the text of an assertion."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the ring is there for Linux alone")

from blaming.device import PROGRAM, device, kernel, run  # noqa: E402

from unstall.blaming import _blame  # noqa: E402
from unstall.blaming.causes import cause_of, fits  # noqa: E402
from unstall.blaming.ring import KERNEL  # noqa: E402
from unstall.blaming.verdict import verdict  # noqa: E402

NAMED = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernelUtils.cu:16: vectorized_gather_kernel: block: [55,0,0], "
    'thread: [16,0,0] Assertion `ind >=0 && ind < ind_dim_size && "gather index out of bounds"` failed.'
)
OF_A_LAMBDA = (
    "/pytorch/aten/src/ATen/native/cuda/ScatterGatherKernel.cu:163: operator(): block: [0,0,0], thread: [89,0,0] "
    'Assertion `idx_dim >= 0 && idx_dim < index_size && "scatter gather kernel index out of bounds"` failed.'
)


@pytest.mark.parametrize(
    "between", ["<shim>", "<string>", "<frozen importlib>", "/x/site-packages/torch/nn/modules/module.py"]
)
def test_frames_that_no_user_wrote_are_never_the_line(between: str) -> None:
    names = {"work": _blame.work}
    exec(compile(f"def inner(): work({KERNEL}, 0, 'kernel')", between, "exec"), names)
    with device() as on:
        exec(compile("inner()\nerror(710, 'cuStreamSynchronize')", PROGRAM, "exec"), {**names, "error": _blame.error})
        (suspect,) = verdict(on.ring()).suspects
    assert suspect.where is not None
    assert (suspect.where.file, suspect.where.line) == (PROGRAM, 1)


def test_frames_of_the_interpreter_are_not_told_as_callers() -> None:
    names = {"work": _blame.work}
    exec(compile(f"def inner(): work({KERNEL}, 0, 'kernel')", PROGRAM, "exec"), names)
    exec(compile("def trampoline(): inner()", "<shim>", "exec"), names)
    with device() as on:
        exec(
            compile("trampoline()\nerror(710, 'cuStreamSynchronize')", "/home/me/main.py", "exec"),
            {**names, "error": _blame.error},
        )
        (suspect,) = verdict(on.ring()).suspects
    assert "<shim>" not in {line.file for line in suspect.called_from}


def test_of_lines_without_a_mark_between_them_the_one_whose_kernel_asserted_is_told() -> None:
    with device() as on:
        on.refuses = True
        run(on, [kernel(0, "add"), kernel(0, "vectorized_gather_kernel"), kernel(0, "gemm")])
        (suspect,) = verdict(on.ring(), assertion=NAMED).suspects
    assert suspect.where is not None
    assert (suspect.where.line, suspect.others) == (2, ())


def test_of_streams_the_one_whose_kernel_asserted_is_told() -> None:
    with device() as on:
        run(on, [kernel(1, "gemm"), kernel(2, "vectorized_gather_kernel")])
        (suspect,) = verdict(on.ring(), assertion=NAMED).suspects
    assert suspect.where is not None
    assert suspect.where.line == 2


def test_two_lines_whose_kernels_may_have_asserted_are_both_told() -> None:
    with device() as on:
        on.refuses = True
        run(on, [kernel(0, "vectorized_gather_kernel"), kernel(0, "vectorized_gather_kernel")])
        (suspect,) = verdict(on.ring(), assertion=NAMED).suspects
    assert [line.line for line in suspect.others] == [2]


def test_without_a_mark_between_them_several_iterations_of_a_line_are_told() -> None:
    with device() as on:
        _blame.budget(0.0, 2)
        run(on, ["for _ in range(4):", " " + kernel(0, "vectorized_gather_kernel"), " " + kernel(0, "add")])
        on.does(0, 2)
        (suspect,) = verdict(on.ring(), assertion=NAMED).suspects
    assert (suspect.iteration, suspect.iteration_to, suspect.others) == (2, 4, ())


def test_a_line_whose_kernel_has_not_asserted_is_no_other_line() -> None:
    with device() as on:
        on.refuses = True
        run(on, [kernel(0, "vectorized_gather_kernel"), kernel(0, "add"), kernel(0, "vectorized_gather_kernel")])
        (suspect,) = verdict(on.ring(), assertion=NAMED).suspects
    assert [line.line for line in suspect.others] == [3]


@pytest.mark.parametrize(
    ("kernel_name", "may"),
    [
        ("at::native::_scatter_gather_elementwise_kernel<128, operator()>", True),
        ("at::native::elementwise_kernel<operator()>", False),
    ],
)
def test_an_assertion_of_a_lambda_is_of_kernels_that_are_called_like_its_file(kernel_name: str, may: bool) -> None:
    assert fits(OF_A_LAMBDA, kernel_name) == may


def test_an_assertion_of_embedding_has_its_cause() -> None:
    assert cause_of(710, NAMED, ())[0] == "an index is out of range (embedding or index_select)"


def test_an_illegal_address_has_a_cause_without_an_assertion() -> None:
    assert cause_of(700, "", ("scale",))[0] == "a kernel read or wrote memory that is not there"
