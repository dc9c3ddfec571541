"""What user programs do with torch.cuda."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.torch_cuda.running import facts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("training", devices=2)


def test_a_loader_s_workers_and_pinning_thread_work(told: dict[str, Any]) -> None:
    assert told["loaded"] == [[True, 224.0], [True, 736.0], [True, 1248.0], [True, 1760.0]]


def test_mixed_precision_trains(told: dict[str, Any]) -> None:
    assert told["mixed precision"] == ["torch.float16", True, 65536.0]


def test_what_was_saved_is_loaded_where_it_is_wanted(told: dict[str, Any]) -> None:
    assert told["saved and loaded"] == ["cuda:0", "cpu", "cuda:1", "cuda:1", True, "cuda:0"]


def test_data_parallel_gives_the_gradients_of_one_device(told: dict[str, Any]) -> None:
    assert told["data parallel"] is True


def test_tensors_are_spread_and_brought_together(told: dict[str, Any]) -> None:
    assert told["collectives"] == {
        "broadcast": ["cuda:0", "cuda:1"],
        "scatter": True,
        "sizes": [[0, 1], [2, 3, 4]],
        "gather": True,
        "gather on the host": "cpu",
        "out": True,
        "coalesced": ["cuda:1", True],
        "reduced": True,
    }


def test_nccl_s_collectives_within_one_process(told: dict[str, Any]) -> None:
    assert told["nccl"] == [[3.0] * 4, [3.0] * 8, [6.0] * 2]


def test_only_what_draws_moves_the_generator(told: dict[str, Any]) -> None:
    """As on CUDA; the parameters of an LSTM are drawn on the CPU."""
    assert [name for name, moved in told["who draws"].items() if moved] == ["attention with dropout", "dropout"]


def test_random_numbers_follow_seeds_and_states(told: dict[str, Any]) -> None:
    assert told["random numbers"] == [True, True, True, [16], 5, 2]


def test_a_new_generator_has_torch_s_own_seed(told: dict[str, Any]) -> None:
    assert told["random before cuda"] == 67280421310721


def test_host_memory_can_be_pinned(told: dict[str, Any]) -> None:
    assert told["pinned"] == [True, True]


def test_torch_compile_runs_what_it_is_given_and_says_so(told: dict[str, Any]) -> None:
    assert told["compiled"] == [[2.0, 2.0], [2]]
    assert told["compiled warns"][0].startswith("torch.compile does not compile for the virtual GPU")
