"""cuDNN's recurrent layers: one kernel for all steps of small layers, otherwise two a step."""

from __future__ import annotations

from collections import Counter

import pytest

from unstall.timeline.columns import DeviceKind
from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.measured_costs import MeasuredCosts
from unstall.virtual.costs.recurrent import recurrent
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

RNN, LSTM, GRU = 1, 2, 3


def spec(*sizes: int) -> TensorSpec:
    return TensorSpec("float32", sizes, contiguous_strides(sizes))


def forward(
    mode: int, hidden: int, *, steps: int = 40, layers: int = 1, both: bool = False, first: bool = False
) -> Signature:
    x = spec(*((16, steps) if first else (steps, 16)), 64)
    inputs = (
        x,
        (),
        4,
        spec(100),
        spec(1, 16, hidden),
        None,
        mode,
        hidden,
        0,
        layers,
        first,
        None,
        False,
        both,
        (),
        None,
    )
    return Signature("aten::_cudnn_rnn", "", inputs, (spec(steps, 16, hidden),))


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("both", [False, True])
def test_small_layers_run_all_steps_in_one_kernel(layers: int, both: bool) -> None:
    found = recurrent(forward(LSTM, 128, layers=layers, both=both))
    assert len(found) == 2 * layers * (1 + both)
    assert [piece.ns is None for piece in found] == [True, False] * layers * (1 + both)


def test_large_layers_launch_two_kernels_a_step() -> None:
    found = recurrent(forward(LSTM, 1024, steps=40))
    assert len(found) == 1 + 2 * 40
    assert all(piece.ns is None for piece in found)


def test_steps_are_counted_along_the_dimension_of_time() -> None:
    in_time, in_batch = (recurrent(forward(GRU, 64, steps=50, first=first))[1].ns for first in (False, True))
    assert in_time == in_batch


def test_a_packed_sequence_takes_its_steps_and_its_largest_batch() -> None:
    call = forward(LSTM, 1024, steps=40)
    packed = Signature(call.name, "", (spec(640, 64), *call.inputs[1:14], (16,) * 40, None), call.outputs)
    assert recurrent(packed) == recurrent(call)


def test_projections_are_what_the_next_step_multiplies() -> None:
    call = forward(LSTM, 1024)
    projected = Signature(call.name, "", (*call.inputs[:8], 128, *call.inputs[9:]), call.outputs)
    assert recurrent(projected)[1].signature.inputs[0] == spec(16, 128)


def test_backward_computes_the_gradients_of_the_weights_too() -> None:
    call = forward(GRU, 1024, steps=40)
    inputs = (*call.inputs[:6], spec(40, 16, 1024), spec(40, 16, 1024), None, None, *call.inputs[6:])
    backward = recurrent(Signature("aten::_cudnn_rnn_backward", "", inputs, call.outputs))
    assert len(backward) == len(recurrent(call)) + 2


def test_the_host_takes_longer_the_more_kernels_it_launches() -> None:
    gpu = gpu_named("h200")
    costs = MeasuredCosts(gpu, gpu.measured)
    short, long = (costs.cost(forward(LSTM, 1024, steps=steps)) for steps in (10, 100))
    assert long.host_ns == short.host_ns
    further_ns = sum(each.host_ns for each in long.kernels) - sum(each.host_ns for each in short.kernels)
    assert further_ns == 90 * 2 * round(gpu.host_pace * 5_200)
    assert not long.workspaces


@pytest.mark.parametrize(("mode", "real_us"), [(LSTM, 417), (GRU, 330), (RNN, 202)])
def test_the_host_works_longer_for_each_further_layer_of_a_backward(mode: int, real_us: int) -> None:
    one, three = (recurrent(backward_of(forward(mode, 64, layers=layers))) for layers in (1, 3))
    assert (three[0].host_ns - one[0].host_ns) / 2 / 1e3 == pytest.approx(real_us, rel=0.1)


def test_layers_that_follow_each_other_multiply_their_inputs_in_parts() -> None:  # counted on an H200, of 40 x 400
    call, one = forward(LSTM, 400, steps=35, layers=3), forward(LSTM, 400, steps=35)
    assert len(recurrent(call)) == 3 * (2 * 35 + 5)
    assert len(recurrent(one)) == 2 * 35 + 1
    assert len(recurrent(forward(LSTM, 400, steps=35, layers=3, both=True))) == 6 * (2 * 35 + 1)
    short = recurrent(backward_of(forward(LSTM, 400, steps=10, layers=2)))
    assert len(short) == 2 * (2 * 10 + 5)


def test_dropout_between_layers_is_a_kernel_for_each_part() -> None:
    call = forward(LSTM, 400, steps=35, layers=3)
    inputs = (*call.inputs[:11], 0.3, True, *call.inputs[13:])
    assert len(recurrent(Signature(call.name, "", inputs, call.outputs))) == len(recurrent(call)) + 2 * 5


def kernels_of(call: Signature) -> dict[DeviceKind, int]:
    gpu = gpu_named("h100")
    return dict(Counter(kernel.kind for kernel in MeasuredCosts(gpu, gpu.measured).cost(call).kernels))


def backward_of(call: Signature) -> Signature:
    out = call.outputs[0]
    return Signature(
        "aten::_cudnn_rnn_backward", "", (*call.inputs[:6], out, out, None, None, *call.inputs[6:]), (out,)
    )


def test_a_step_forward_has_two_kernels_and_one_backward_a_memset_too() -> None:
    short, long = (kernels_of(forward(LSTM, 512, steps=steps)) for steps in (50, 100))
    assert long[DeviceKind.KERNEL] - short[DeviceKind.KERNEL] == 50 * 2
    short, long = (kernels_of(backward_of(forward(LSTM, 512, steps=steps))) for steps in (50, 100))
    assert long[DeviceKind.KERNEL] - short[DeviceKind.KERNEL] == 50 * 2
    assert long[DeviceKind.MEMSET] - short.get(DeviceKind.MEMSET, 0) == 50


@pytest.mark.parametrize(
    ("mode", "hidden", "dtype", "batch", "at_once"),
    [  # seen on an H100 (50 steps of 128 inputs), forward and backward
        (LSTM, 128, "float32", 32, (True, True)),
        (LSTM, 192, "float32", 32, (True, False)),
        (LSTM, 193, "float32", 32, (False, False)),
        (GRU, 128, "float32", 32, (True, True)),
        (RNN, 256, "float32", 32, (True, True)),
        (RNN, 512, "float32", 32, (False, False)),
        (LSTM, 512, "float16", 32, (True, True)),
        (LSTM, 512, "bfloat16", 32, (False, False)),
        (GRU, 512, "float16", 32, (False, False)),
        (LSTM, 512, "float16", 136, (False, False)),  # by torch's source
    ],
)
def test_which_layers_run_all_steps_at_once(
    mode: int, hidden: int, dtype: str, batch: int, at_once: tuple[bool, bool]
) -> None:
    call = forward(mode, hidden, steps=50)
    x = TensorSpec(dtype, (50, batch, 128), contiguous_strides((50, batch, 128)))
    out = TensorSpec(dtype, (50, batch, hidden), contiguous_strides((50, batch, hidden)))
    call = Signature(call.name, "", (x, *call.inputs[1:]), (out,))
    assert tuple(len(recurrent(each)) < 50 for each in (call, backward_of(call))) == at_once


@pytest.mark.parametrize(
    ("mode", "hidden", "us"), [(LSTM, 64, 36), (LSTM, 128, 143), (LSTM, 160, 306), (LSTM, 192, 436), (RNN, 256, 125)]
)
def test_all_steps_of_a_small_layer_take_what_they_took_on_an_h100(mode: int, hidden: int, us: float) -> None:
    gpu = gpu_named("h100")
    kernels = MeasuredCosts(gpu, gpu.measured).cost(forward(mode, hidden, steps=50)).kernels
    assert sum(kernel.duration_ns for kernel in kernels) / 1e3 == pytest.approx(us, rel=0.15)
