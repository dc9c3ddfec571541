"""Sparse tensors: what graph networks multiply with, and the gradients of sparse embeddings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from processes import succeeded
from virtual.torch_cuda.running import facts

pytestmark = pytest.mark.slow

INDEX_BYTES, VALUE_BYTES, NONZERO = 2 * 8, 4, 12
BLOCK_BYTES = 512


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("sparse_tensors")


def test_values_and_gradients_are_those_of_the_cpu(told: dict[str, Any]) -> None:
    assert told["differing"] == []


def test_results_are_on_the_device(told: dict[str, Any]) -> None:
    assert len(told["devices"]) == 6
    assert all(devices == ["cuda"] for _, devices in told["devices"])


def test_indices_and_values_take_memory(told: dict[str, Any]) -> None:
    blocks = [-(-NONZERO * size // BLOCK_BYTES) for size in (INDEX_BYTES, VALUE_BYTES)]
    assert told["bytes"] == sum(blocks) * BLOCK_BYTES


def test_a_product_waits_if_it_has_to_coalesce_first(tmp_path: Path) -> None:
    program = tmp_path / "products.py"
    program.write_text(
        """
import torch, unstall

matrix = torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2, 3], (2, 2)).to("cuda")
for each in (matrix, matrix.coalesce()):
    with unstall.no_sync("count") as guard:
        torch.sparse.mm(each, torch.ones(2, 3, device="cuda"))
    print(guard.count)
"""
    )
    assert succeeded([sys.executable, "-m", "unstall.virtual", str(program)]).stdout.split() == ["1", "0"]


def test_a_graph_refuses_them_by_the_operators_name(told: dict[str, Any]) -> None:
    assert told["captured"] == "the virtual GPU cannot capture aten::addmm with sparse tensors in a graph"


def test_what_a_gpu_has_no_kernel_for_is_refused_here_too(told: dict[str, Any]) -> None:
    assert told["of the CPU alone"].startswith("Could not run 'aten::_sparse_mm_reduce_impl'")
