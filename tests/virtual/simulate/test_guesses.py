"""An operator whose cost cannot be worked out is guessed, and the report says so: the simulation goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from virtual.simulate.logs import Fixed, Log

from unstall.virtual.costs.families import attention, convolutions, indexing, products, reductions, rows
from unstall.virtual.costs.measured_costs import MeasuredCosts, costs_of
from unstall.virtual.costs.model import Costs, Kernel, OperatorCost
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides, plain
from unstall.virtual.options import MachineOptions
from unstall.virtual.simulation.actions import Actions
from unstall.virtual.simulation.simulator import Simulator

OTHERS = (
    *("add", "copy_", "where", "sort", "topk", "histc", "_foreach_add_", "_fused_adamw_", "cudnn_convolution_relu"),
    *("linalg_qr", "_fft_c2c", "nobody_knows_this", "_grouped_mm", "grid_sampler_2d", "_ctc_loss", "searchsorted"),
)
FAMILIES = (attention, convolutions, indexing, products, reductions, rows)
NAMES = sorted({*OTHERS, *(name for family in FAMILIES for name in family.NAMES)})
DTYPES = ["float32", "float16", "bool", "int64", "complex64", "complex32", "Float8_e8m0fnu"]
SIZES = st.one_of(
    st.just(()), st.lists(st.sampled_from([0, 1, 2, 3, 7, 64]), max_size=8).map(tuple), st.just((1,) * 12)
)


def tensors() -> st.SearchStrategy[TensorSpec]:
    def spec(dtype: str, sizes: tuple[int, ...], strides: Callable[[tuple[int, ...]], tuple[int, ...]]) -> TensorSpec:
        return TensorSpec(dtype, sizes, strides(sizes))

    def expanded(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return (0,) * len(sizes)

    def reversed_(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(reversed(contiguous_strides(tuple(reversed(sizes)))))

    return st.builds(spec, st.sampled_from(DTYPES), SIZES, st.sampled_from([contiguous_strides, expanded, reversed_]))


ARGUMENTS = st.one_of(
    tensors(),
    tensors(),
    st.lists(tensors(), max_size=3).map(tuple),
    st.sampled_from([None, True, False, ("s", True), ("s", False), "mean"]),
    st.integers(-3, 5),
    st.lists(st.integers(-1, 4), max_size=4).map(tuple),
)
SIGNATURES = st.builds(
    Signature,
    st.sampled_from(NAMES).map("aten::{}".format),
    st.just(""),
    st.lists(ARGUMENTS, max_size=9).map(tuple),
    st.lists(st.one_of(tensors(), st.none()), max_size=3).map(tuple),
)


@pytest.fixture(scope="module")
def h200() -> MeasuredCosts:
    return costs_of("h200")


@examples(1_500)
@given(signature=SIGNATURES)
def test_any_call_has_a_cost_that_the_simulation_can_use(h200: MeasuredCosts, signature: Signature) -> None:
    actions = Actions(h200)
    actions.know(plain(signature))
    (cost,) = actions.operators
    assert all(0 <= kernel.duration_ns < 1 << 60 for kernel in cost.kernels)
    guess = h200.guess(signature)
    assert guess.kernels[0].duration_ns > 0
    assert guess.host_ns >= 0  # some operators only call others


def test_a_transform_of_nothing_has_a_cost(h200: MeasuredCosts) -> None:
    empty = TensorSpec("complex64", (2, 0), (1, 1))
    assert h200.cost(Signature("aten::_fft_c2c", "", (empty, (1,), 0, True), (empty,))).host_ns >= 0


@pytest.mark.parametrize("name", ["cudnn_convolution_relu", "miopen_convolution_add_relu"])
def test_a_fused_convolution_that_was_not_measured_is_no_convolution(h200: MeasuredCosts, name: str) -> None:
    x, weight, out = (TensorSpec("float32", sizes, contiguous_strides(sizes)) for sizes in ((), (4,), (2, 4)))
    assert h200.cost(Signature(f"aten::{name}", "", (x, weight, None, (1,)), (out,))).kernels


@pytest.mark.parametrize(
    ("dtype", "precisions", "told"),
    [
        ("float32", ["", "tf32"], True),
        ("float32", ["", "ieee"], False),
        ("float16", [""], False),
        ("float32", [], False),
    ],
)
def test_whether_all_convolutions_may_multiply_in_tf32_is_known(dtype: str, precisions: list[str], told: bool) -> None:
    actions = Actions(Fixed())
    x, weight, out = (
        TensorSpec(dtype, sizes, contiguous_strides(sizes)) for sizes in ((1, 3, 8, 8), (4, 3, 1, 1), (1, 4, 8, 8))
    )
    for precision in precisions:
        call = Signature("aten::convolution", "", (x, weight, None, (1, 1)), (out,), precision)
        actions.know(plain(call))
    assert actions.tf32_convolutions is told


def test_a_guess_moves_the_bytes_of_all_tensors(h200: MeasuredCosts) -> None:
    def guess(size: int) -> int:
        x = TensorSpec("float32", (size,), (1,))
        return h200.guess(Signature("own::kernel", "", (x,), (x,))).kernels[0].duration_ns

    gib = 1 << 28
    assert guess(2 * gib) - guess(gib) == pytest.approx((1 << 31) / 4_000, rel=0.3)  # about 4 TB/s


class Failing(Fixed):
    """Knows nothing of kernels that take 13 ns, and thinks that those of 14 ns take less than none."""

    def cost(self, signature: Signature) -> OperatorCost:
        if signature.name == "13":
            raise IndexError("tuple index out of range")
        if signature.name == "14":
            return OperatorCost((Kernel("impossible", -1),))
        return super().cost(signature)


def ran(costs: Costs, *durations: int) -> tuple[list[tuple[str, int]], tuple[str, ...]]:
    log = Log()
    simulator = Simulator(log, MachineOptions(), costs)
    for duration in durations:
        log.launch(duration)
        simulator.now_ns()
    timeline = simulator.timeline()
    device = timeline.device
    names = (timeline.strings[name] for name in device.name.tolist())
    return list(zip(names, (device.end - device.start).tolist(), strict=True)), timeline.meta.notes


def test_an_operator_that_cannot_be_priced_costs_a_guess_and_a_note() -> None:
    ops, notes = ran(Failing(), 100, 13, 14, 200)
    assert ops == [("kernel", 100), ("guessed", 7_000), ("guessed", 7_000), ("kernel", 200)]
    (note,) = [note for note in notes if "guesses" in note]
    assert note.endswith(": 13, 14")


def test_there_is_no_note_if_nothing_was_guessed() -> None:
    _, notes = ran(Failing(), 100)
    assert not [note for note in notes if "guesses" in note]
