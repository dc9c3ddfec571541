"""Layers that CUDA computes by other operators than the CPU give the CPU's outputs and gradients."""

from __future__ import annotations

import pytest
from virtual.operators.running import told_by

pytestmark = pytest.mark.slow

ROUNDING = 5e-6
ROUNDING_OF_HALVES = 1e-2

BIT_FOR_BIT = (
    "LSTM",
    "LSTM of two layers both ways",
    "LSTM batch first",
    "LSTM packed",
    "LSTM wide and batch first",
    "GRU",
    "GRU wide and batch first",
    "RNN",
    "RNN wide and batch first",
    "Conv2d",
    "Conv2d grouped",
    "Conv2d depthwise",
    "Conv2d channels last",
    "ConvTranspose2d",
    "Conv1d same",
    "Conv3d",
    "BatchNorm2d",
    "BatchNorm2d evaluated",
    "BatchNorm1d of rows",
    "InstanceNorm2d",
    "LayerNorm",
    "GroupNorm",
    "EmbeddingBag sum",
    "EmbeddingBag mean",
    "EmbeddingBag max",
    "ctc",
)
BUT_FOR_ROUNDING = (
    "LSTM without biases",
    "LSTM with projections",
    "GRU of two layers both ways",
    "GRU batch first",
    "GRU packed",
    "RNN of two layers both ways",
    "RNN batch first",
    "RNN packed",
    "LSTMCell",
    "GRUCell",
    "GRUCell without biases",
    "RNNCell",
    "RMSNorm",
)
DROPPING = (
    "EFFICIENT_ATTENTION plain",
    "EFFICIENT_ATTENTION masked",
    "FLASH_ATTENTION plain",
    "CUDNN_ATTENTION plain",
    "CUDNN_ATTENTION masked",
)


def test_a_question_about_shapes_runs_nothing_on_the_device() -> None:
    assert told_by("layers")["asked"] == []


@pytest.mark.parametrize("layer", BIT_FOR_BIT)
def test_a_layer_gives_the_cpu_s_values_bit_for_bit(layer: str) -> None:
    assert told_by("layers")[layer] == 0.0


@pytest.mark.parametrize("layer", BUT_FOR_ROUNDING)
def test_a_layer_of_other_kernels_gives_the_cpu_s_values_but_for_rounding(layer: str) -> None:
    assert told_by("layers")[layer] < ROUNDING


@pytest.mark.parametrize("kernel", DROPPING)
def test_attention_drops_the_same_scores_in_the_backward(kernel: str) -> None:
    told = told_by("layers")
    assert told[f"dropped {kernel}"] is True
    assert told[f"dropout {kernel}"] < ROUNDING_OF_HALVES


def test_layers_drop_the_same_between_them_in_the_backward() -> None:
    assert told_by("layers")["LSTM dropping"] < ROUNDING_OF_HALVES


def test_what_is_dropped_differs_from_call_to_call() -> None:
    assert told_by("layers")["LSTM drops by the seed"] is True


@pytest.mark.parametrize("dtype", ["torch.int16", "torch.int64"])
def test_integers_are_counted_as_the_cpu_counts_floating_point_numbers(dtype: str) -> None:
    told = told_by("layers")
    assert told[f"histc {dtype}"] == told["histc"]


def test_products_of_integers_are_refused_as_cuda_does() -> None:
    assert told_by("layers")["_int_mm"] == [
        "self.size(0) needs to be greater than 16, but got 16",
        "self.size(1) needs to be greater than 0 and a multiple of 8, but got 20",
        "mat2.size(1) needs to be greater than 0 and a multiple of 8, but got 20",
        "",
    ]


def test_halves_that_the_cpu_has_no_kernel_for_are_computed() -> None:
    dtype, apart = told_by("layers")["halves"]
    assert dtype == "torch.float16"
    assert apart < ROUNDING_OF_HALVES


def test_autocast_casts_recurrent_layers() -> None:
    assert told_by("layers")["autocast LSTM"] == "torch.float16"
