"""What sparse operators cost: of measured calls, with the waits of Thrust's algorithms."""

from __future__ import annotations

import pytest
import torch

from unstall.timeline.columns import DeviceKind
from unstall.virtual.costs.measure import resolve, signature_of
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.model import OperatorCost
from unstall.virtual.costs.signature import Signature, TensorSpec, parse, plain
from unstall.virtual.costs.suite import TensorPool, sparse

_POOL = TensorPool("cpu", 1 << 24)


def _cost(operator: str, *args: object) -> OperatorCost:
    result = resolve(operator)(*args)
    return costs_of("h200").cost(signature_of(resolve(operator), args, {}, result))


def test_the_signature_of_a_sparse_call_has_the_parts_of_its_tensors() -> None:
    _POOL.begin()
    graph, dense = sparse.matrix(_POOL, 30, 20, 50), torch.randn(20, 4)

    signature = signature_of(resolve("mm.default"), (graph, dense), {}, graph @ dense)

    places, values = TensorSpec("int64", (2, 50), (50, 1)), TensorSpec("float32", (50,), (1,))
    factor, product = TensorSpec("float32", (20, 4), (4, 1)), TensorSpec("float32", (30, 4), (4, 1))
    assert signature == Signature("sparse::mm", "", ((places, values), factor), (product,))
    assert parse(plain(signature)) == signature


def test_adding_up_equal_places_waits_for_each_algorithm_and_for_their_count() -> None:
    """As on an H200: four times for Thrust's algorithms, and once for the copy of the count."""
    gradient = sparse.rows_of(_POOL, 5_000, 800, 32, repeats=True)

    cost = _cost("_coalesce.default", gradient)

    copies = [each for each in cost.kernels if each.kind is DeviceKind.COPY and "DtoH" in each.name]
    assert sum(each.is_wait for each in cost.kernels) == 4
    assert len(copies) == 1
    assert cost.waits_for == "value"
    assert all(each.duration_ns == 0 for each in cost.kernels if each.is_wait)


def test_a_product_of_a_coalesced_matrix_does_not_wait() -> None:
    graph = sparse.matrix(_POOL, 3_000, 3_000, 12_000)

    assert _cost("mm.default", graph, torch.randn(3_000, 64)).waits_for is None


@pytest.mark.parametrize("stored", [1_000, 30_000, 200_000])
def test_a_larger_gradient_takes_longer(stored: int) -> None:
    table = torch.zeros(2_000, 8)
    few, many = (sparse.rows_of(_POOL, 2_000, count, 8, repeats=True) for count in (stored, 8 * stored))

    times = [sum(each.duration_ns for each in _cost("add_.Tensor", table, rows).kernels) for rows in (few, many)]

    assert times[0] < times[1]
