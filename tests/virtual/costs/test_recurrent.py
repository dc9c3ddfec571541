"""cuDNN's recurrent layers: one kernel for all steps if the weights fit into registers, otherwise two a step."""

from __future__ import annotations

import pytest

from unstall.virtual.costs.answers import MeasuredCosts
from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.recurrent import recurrent
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

LSTM, GRU = 2, 3


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
    assert sum(each.host_ns for each in long.kernels) - sum(each.host_ns for each in short.kernels) == 90 * 2 * 8_000
    assert not long.workspaces
