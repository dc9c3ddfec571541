"""Streams and events. What is compared with is what they did on an H200 with torch 2.11 for CUDA 13.0."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.torch_cuda.running import facts

from unstall.virtual.torch_cuda.streams import stream_of_pointer, stream_pointer

SLEPT_MS = 50.53
"""torch.cuda._sleep(100_000_000) of an H200."""
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("streams_and_events")


@slow
def test_they_are_torch_s_own_streams_and_events(told: dict[str, Any]) -> None:
    assert told["subclasses"] == [True, True]


@slow
def test_streams_have_c10_s_numbers_and_priorities(told: dict[str, Any]) -> None:
    assert told["new streams"] == [[3, 0], [35, 0], [5, -1], [7, -2], [9, -3], [41, -3], [67, 0]]
    assert told["priorities"] == [0, -3]


@slow
def test_every_33rd_stream_is_the_first_again(told: dict[str, Any]) -> None:
    assert told["the pool comes round"] == [32, 64]


@slow
def test_the_default_stream_s_pointer_is_null(told: dict[str, Any]) -> None:
    assert told["default stream"] == [0, "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>"]


@slow
def test_streams_are_equal_and_hash_by_what_they_are(told: dict[str, Any]) -> None:
    assert told["equal"] == [False, True]
    assert told["as a key"] == 1
    assert told["equal to torch.Stream"] is False


@slow
def test_a_stream_is_current_within_its_block(told: dict[str, Any]) -> None:
    assert told["within streams"] == [True, True, True, True]


@slow
def test_work_is_ordered_by_events_of_either_kind(told: dict[str, Any]) -> None:
    assert told["ordered work"] == [2000.0, True, True]


@slow
def test_events_measure_the_device_s_time(told: dict[str, Any]) -> None:
    assert told["slept ms"] == pytest.approx(SLEPT_MS, rel=0.01)
    assert told["slept ms of torch.Event"] == pytest.approx(SLEPT_MS, rel=0.01)


@slow
def test_a_stream_takes_a_microsecond_for_each_event_with_timing(told: dict[str, Any]) -> None:
    assert told["empty ms"] == pytest.approx([0.00128, 0.00256])


@slow
def test_events_and_streams_are_done_once_their_work_is(told: dict[str, Any]) -> None:
    assert told["waiting"] == [False, False, True, True]


@slow
@pytest.mark.parametrize(
    ("when", "kind", "text"),
    [
        ("without timing", "ValueError", "Both events must be created with argument 'enable_timing=True'."),
        ("not recorded", "ValueError", "Both events must be recorded before calculating elapsed time."),
        ("not done", "RuntimeError", "Both events must be completed before calculating elapsed time."),
    ],
)
def test_elapsed_time_is_refused_in_torch_s_words(told: dict[str, Any], when: str, kind: str, text: str) -> None:
    assert told[when] == ["raises", kind, text]


@slow
def test_an_event_comes_to_be_when_it_is_recorded(told: dict[str, Any]) -> None:
    assert told["new event"] == ["<torch.cuda.Event uninitialized>", None, True, 0, None]
    assert told["recorded event"] == ["cuda:0", True, True]


@slow
@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("between processes", "torch.cuda.Event(interprocess=True)"),
        ("handle", "torch.cuda.Event.ipc_handle"),
        ("external stream", "torch.cuda.ExternalStream"),
        ("stream from elsewhere", "torch.cuda.get_stream_from_external"),
    ],
)
def test_what_needs_another_process_or_library_is_refused_by_name(told: dict[str, Any], what: str, name: str) -> None:
    raises, kind, text = told[what]
    assert (raises, kind) == ("raises", "NotSupportedError")
    assert text.startswith(f"{name} is not supported by the virtual GPU")


@pytest.mark.parametrize("device", [0, 1, 7])
@pytest.mark.parametrize("stream", [0, 3, 35, 5, 41, 993])
def test_a_stream_is_found_again_by_its_pointer(device: int, stream: int) -> None:
    assert stream_of_pointer(stream_pointer(device, stream), device) == stream


def test_a_number_that_is_no_pointer_of_ours_is_no_stream() -> None:
    with pytest.raises(ValueError, match="0x1234 is no stream of cuda:0"):
        stream_of_pointer(0x1234, 0)
