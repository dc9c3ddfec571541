"""Half batches: samples that are mixed, and other bits within rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unstall
from unstall.numbers.answer import Row
from unstall.numbers.halves import compare_halves


def values(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def row_of(fn: Any, *inputs: object) -> Row:
    (row,) = unstall.compare_numbers(fn, *inputs, across=["batch"])
    return row


def layers(*inner: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(30, 30), *inner, nn.Linear(30, 30))


class Halving(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return Split.apply(x.sin(), w).cos()  # type: ignore[no-untyped-call,no-any-return]


@torch.library.custom_op("unstall_tests::by_size", mutates_args=())
def by_size(x: Tensor, w: Tensor) -> Tensor:
    """Adds up in two parts if the batch is small, as kernels do that are picked by size."""
    half = x.shape[1] // 2
    return x @ w if len(x) > 4 else x[:, :half] @ w[:half] + x[:, half:] @ w[half:]


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Any:
        return by_size(x, w)


@pytest.mark.parametrize("running", [True, False])
def test_a_batch_norm_in_training_mixes_samples(running: bool) -> None:
    row = row_of(layers(nn.BatchNorm1d(30, track_running_stats=running)), values(8, 30))
    assert row.kind == "different"
    assert "The result of one sample depends on the other samples: native_batch_norm at" in row.sentence
    assert row.found is not None
    assert row.found.first is not None
    assert row.found.first.seen.name == "native_batch_norm"


def test_a_batch_norm_that_does_not_train_mixes_none() -> None:
    assert row_of(layers(nn.BatchNorm1d(30)).eval(), values(8, 30)).agrees


def test_the_line_that_mixes_samples_is_named() -> None:
    def fn(v: Tensor) -> Tensor:
        y = v.exp()
        return y - y.mean(0)

    row = row_of(fn, values(8, 30))
    assert "mean at test_halves.py:" in row.sentence
    assert row.found is not None
    assert row.found.first is not None
    assert row.found.first.seen.place.line == fn.__code__.co_firstlineno + 2


@pytest.mark.parametrize("batch", [8, 7])
def test_other_bits_within_rounding_are_named_and_agree(batch: int) -> None:
    row = row_of(Halving(), values(batch, 64), values(64, 64)[:, :60])
    assert row.kind == "batch", row
    assert row.agrees
    assert "by_size at test_halves.py:" in row.sentence
    assert "for this size" in row.sentence


@pytest.mark.parametrize("batch_first", [True, False])
def test_where_the_batch_is_in_a_tensor_does_not_matter(batch_first: bool) -> None:
    """Rows of samples that lie between each other are no difference."""
    torch.manual_seed(0)
    inner = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=batch_first)

    def fn(layer: nn.Module, v: Tensor) -> Tensor:
        result: Tensor = layer(v) if batch_first else layer(v.transpose(0, 1)).transpose(0, 1)
        return result

    halves = compare_halves(fn, [inner, values(8, 12, 32)])
    assert halves is not None
    assert halves.found.first is None
    inside = [pair for pair in halves.found.pairs if pair.seen.kind == "operator" and not pair.seen.place.backward]
    assert len(inside) > 5
    assert all(pair.share <= halves.found.limit for pair in inside)
    assert row_of(fn, inner, values(8, 12, 32)).agrees


def test_attention_over_the_batch_is_found() -> None:
    torch.manual_seed(0)
    row = row_of(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0), values(8, 12, 32))
    assert row.kind == "different"
    assert "attention" in row.sentence


def test_of_random_numbers_no_half_is_compared() -> None:
    assert compare_halves(layers(nn.Dropout(0.5)), [values(8, 30)]) is None


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # torch's, of a backward that begins with a product
def test_on_a_gpu_both_kernels_are_named() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(512, 512).cuda(), torch.randn(4096, 512, device="cuda")
    halves = None
    for batch in (2, 16, 64, 128, 512, 1024, 4096):
        halves = compare_halves(model, [x[:batch]])
        if halves is not None and halves.bits is not None:
            break
    assert halves is not None
    assert halves.bits is not None
    assert all(halves.kernels)
