"""CUDA graphs. What is compared with is what an H200 did with torch 2.11 for CUDA 13.0."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.torch_cuda.running import facts

from unstall.virtual.allocator.blocks import pool_number, pool_of_number
from unstall.virtual.torch_cuda.graphs import EMPTY

slow = pytest.mark.slow
NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"
CAPTURED_EVENT = "CUDA error: operation not permitted on an event last recorded in a capturing stream"
INVALIDATED = "CUDA error: operation failed due to a previous error during capture"
NOT_PINNED = (
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. Please use"
    " tensor.pin_memory() or allocate the tensor with pin_memory=True."
)
NO_CAPTURE = "Called CUDAGraph::replay without a preceding successful capture."
OWNS_ONE = "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("graphs")


@slow
def test_a_replay_computes_anew_from_what_its_inputs_hold(told: dict[str, Any]) -> None:
    assert told["replayed"] == [True, False, [[3.0] * 4, [11.0] * 4]]


@pytest.mark.parametrize(
    "what", ["views", "written", "streams", "freed_by_a_thread", "resized", "trained", "without_gradients"]
)
def test_replays_give_the_bits_of_eager_calls_whatever_a_capture_frees(what: str) -> None:
    assert facts("graph_memory")[what] is True


def test_where_numerics_are_skipped_a_replay_finds_out_which_values_are_known() -> None:
    told = facts("graph_skipped", numerics="skip")
    assert told["made_unknown"] == [[2.0] * 3, [0.0] * 3, [0.0] * 3]
    assert told["made_known"] == [[2.0, 4.0, 6.0], [2.0, 4.0, 6.0]]
    assert told["never_replayed"] == [[0.0] * 3, [0.0] * 3]
    assert told["in_parts"] == [[8.0] * 3 + [7.0] * 3, 3.0]
    warned = {name for name, of in told.items() if name.endswith(" warns") and of}
    assert warned == {"made_unknown warns", "never_replayed warns"}


@slow
def test_graphs_share_a_pool_or_have_their_own(told: dict[str, Any]) -> None:
    same, first_of_handle, names, has_segments = told["pools"]
    assert same is True
    assert first_of_handle == 0
    assert names == ["0_1", "2_0"]  # the handle's and the one of two graphs; that of the graph before is gone with it
    assert has_segments is True


@slow
def test_a_stream_that_waits_for_a_captured_one_is_captured(told: dict[str, Any]) -> None:
    assert told["joined streams"] == [True, [4.0] * 4]


@slow
def test_a_recurrent_layer_s_backward_is_replayed(told: dict[str, Any]) -> None:
    assert told["recurrent"] is True


@slow
def test_graphed_callables_train(told: dict[str, Any]) -> None:
    assert told["graphed training"] == [True, True]


@slow
@pytest.mark.parametrize("what", ["item", "synchronize", "stream synchronize", "stream query", "nonzero"])
def test_waiting_spoils_a_capture(told: dict[str, Any], what: str) -> None:
    assert told[f"within a capture: {what}"] == [
        ["AcceleratorError", NOT_PERMITTED],
        ["AcceleratorError", INVALIDATED],
        ["RuntimeError", NO_CAPTURE],
    ]


@slow
def test_an_event_recorded_in_a_capture_cannot_be_asked(told: dict[str, Any]) -> None:
    within, _, _ = told["within a capture: event query"]
    assert within == ["AcceleratorError", CAPTURED_EVENT]


@slow
@pytest.mark.parametrize("what", ["upload", "download"])
def test_copies_with_pageable_memory_are_refused(told: dict[str, Any], what: str) -> None:
    within, _, _ = told[f"within a capture: {what}"]
    assert within in (["AcceleratorError", NOT_PERMITTED], ["RuntimeError", NOT_PINNED])


@slow
@pytest.mark.parametrize("what", ["empty cache", "statistics"])
def test_asking_the_allocator_spoils_nothing(told: dict[str, Any], what: str) -> None:
    assert told[f"within a capture: {what}"] == [["fine"], ["fine"], ["fine"]]


@slow
def test_an_empty_graph_warns(told: dict[str, Any]) -> None:
    warns = [["UserWarning", EMPTY, "graphs.py"]]
    assert {what: told[f"captured {what}"] for what in ("nothing", "a view", "memory", "no elements")} == {
        "nothing": warns,
        "a view": warns,
        "memory": warns,
        "no elements": warns,
    }
    assert told["captured a kernel"] == told["captured a copy"] == []


@slow
@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("twice", OWNS_ONE),
        ("never captured", NO_CAPTURE),
        ("pool of none", "Called CUDAGraph::pool() without a preceding successful capture."),
        (
            "on the default stream",
            "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on"
            " the default stream.)",
        ),
        (
            "raw",
            "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true",
        ),
    ],
)
def test_misuse_is_refused_in_torch_s_words(told: dict[str, Any], what: str, text: str) -> None:
    assert told[what] == ["raises", "RuntimeError", text]


@pytest.mark.parametrize("pool", [(0, 1), (1, 0), (7, 0), (0, 1 << 20)])
def test_a_pool_is_found_again_by_its_number(pool: tuple[int, int]) -> None:
    assert pool_of_number(pool_number(pool)) == pool
