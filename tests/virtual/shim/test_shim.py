"""Programs on the virtual GPU: their values, their errors, and what the log has of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # the shim is compiled once, and torch imported
Facts = Callable[[str], Any]

LAUNCH, COPY, MALLOC, FREE, EVENT_RECORD, EVENT_WAIT, SYNC_STREAM = 4, 5, 6, 7, 9, 10, 12
CAPTURE_BEGIN, CAPTURE_END, GRAPH_LAUNCH = 15, 16, 17


def test_a_training_computes_what_the_cpu_does_to_the_bit(real: Facts) -> None:
    assert real("training_is_the_cpus")


def test_sums_do_not_round_by_the_number_of_threads(real: Facts) -> None:
    on_cpu, on_gpu, threads = real("means_by_threads")
    assert on_cpu > 1
    assert (on_gpu, threads) == (1, 3)


def test_tensors_print(real: Facts) -> None:
    assert real("printed") == "tensor([0, 1, 2], device='cuda:0')"


def test_what_is_saved_loads_onto_its_device(real: Facts) -> None:
    assert real("saved_and_loaded") == ["cuda:1", [0.0, 1.0, 2.0]]


def test_deep_copies_share_storages_as_the_originals_do(real: Facts) -> None:
    assert real("copied_deep") == [[0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 3.0, 4.0]]


def test_shapes_that_depend_on_values(real: Facts) -> None:
    assert real("nonzero") == [[[1], [3]], [3, 5], [5]]


def test_nonzero_waits_for_its_count(real: Facts) -> None:
    assert real("nonzero_waits") == [LAUNCH, COPY, SYNC_STREAM]


def test_item_is_a_copy_that_the_host_waits_for(real: Facts) -> None:
    assert real("item_reads") == [COPY, SYNC_STREAM, 2 | 16, 4]


def test_copies_tell_their_direction_and_pinned_memory(real: Facts) -> None:
    assert real("flags_of_copies") == [[1, 40], [1 | 4 | 8, 40], [2, 40], [3 | 8, 40]]


def test_small_pinned_tensors_share_2_mib_that_the_driver_pins_and_large_ones_have_their_own(real: Facts) -> None:
    assert real("bytes_that_the_driver_pins") == [2 * 2048, 2, 4096, 65536]


def test_only_blocking_copies_wait(real: Facts) -> None:
    assert real("waits_of_copies") == [[COPY, SYNC_STREAM], [COPY]]


def test_streams_and_events_are_logged_in_order(real: Facts) -> None:
    assert real("streams_and_events") == [
        [LAUNCH, 0], [EVENT_RECORD, 0], [EVENT_WAIT, 1], [LAUNCH, 1], [SYNC_STREAM, 1],
    ]  # fmt: skip


def test_an_event_that_no_program_holds_any_more_is_told_of(real: Facts) -> None:
    assert real("gone_events") == [[0, 1, 2, 3, 3, 3], [0, 1, 2]]


def test_a_resize_keeps_values_in_a_new_allocation(real: Facts) -> None:
    assert real("resized") == [[0.0, 1.0, 2.0, 3.0], [MALLOC, FREE]]


def test_every_allocation_of_a_program_that_has_ended_is_freed(real: Facts) -> None:
    assert real("every_allocation_is_freed") == [True, True]


def test_operators_of_the_cpu_that_compute_are_told_once(real: Facts) -> None:
    assert real("operators_of_the_cpu") == {
        "two": ["cpu aten::mul", "cpu aten::sum"],
        "view": ["cpu aten::empty", "cpu aten::copy_"],
        "made of others": ["cpu aten::mm"],
        "convolution": ["cpu aten::convolution"],
        "a list": ["cpu aten::cat"],
        "an index": ["cpu aten::empty", "cpu aten::index"],
        "in place": ["cpu aten::add", "cpu aten::copy_"],
        "mapped": ["cpu aten::sum"],
        "sparse": [],
        "on the device": ["cpu aten::empty_strided"],
    }


def test_threads_that_the_program_sets_are_told(real: Facts) -> None:
    assert real("threads_of_the_cpu") == [3, 1]


def test_records_tell_what_the_thread_was_in(real: Facts) -> None:
    assert real("what_a_record_is_within") == [[0, 2, 2], [0, 1, 1]]  # it begins, works, ends


def test_each_operator_ends(real: Facts) -> None:
    assert real("operators_end_in_order")


def test_giving_memory_of_this_machine_back_is_no_time_of_the_programs(real: Facts) -> None:
    assert real("share_of_giving_back") > 0.5  # it takes ms, and what follows takes us


def test_uses_are_byte_ranges_of_allocations(real: Facts) -> None:
    assert sorted(real("uses")) == sorted([[0, 8, 8, 1], [1, 0, 8, 0], [0, 8, 8, 1]])


def test_an_argument_that_has_the_memory_of_an_earlier_one_is_marked(real: Facts) -> None:
    again, apart = [False, True, False], [False, False, False]
    assert real("repeated_inputs") == [again, apart, apart, again, again]


def test_a_signature_has_shapes_and_values_of_arguments(real: Facts) -> None:
    inputs = [["t", "float32", [3, 2], [1, 3]], [0], False, None]
    assert real("signature") == ["aten::sum", "dim_IntList", inputs, [["t", "float32", [2], [1]]], ""]


def test_a_stack_starts_at_the_line_that_launched(real: Facts) -> None:
    assert real("stack_names_the_function") == ["<lambda>", "logged", "stack_names_the_function"]


def test_tensors_of_several_devices_are_refused_in_cudas_words(real: Facts) -> None:
    same = "Expected all tensors to be on the same device, but "
    assert real("devices_that_do_not_fit") == [
        ["RuntimeError", same + "found at least two devices, cuda:0 and cpu!"],
        ["RuntimeError", same + "got mat2 is on cpu, different from other tensors on cuda:0 (when checking argument "
         "in method wrapper_CUDA_mm)"],
        ["RuntimeError", same + "found at least two devices, cuda:0 and cuda:1!"],
    ]  # fmt: skip


def test_numbers_of_the_host_stand_beside_tensors(real: Facts) -> None:
    assert real("scalars_of_the_host") == [3.0, 3.0, 2.0, 2.0, 1.0, 1.0]


def test_a_full_device_raises_where_memory_is_asked_for(real: Facts) -> None:
    assert real("out_of_memory") == ["OutOfMemoryError", "CUDA out of memory. Tried to allocate 4.00 MiB.", [0]]


def test_a_long_log_is_drained(real: Facts) -> None:
    assert real("drained")


def test_random_numbers_follow_from_a_state_and_leave_the_cpus_alone(real: Facts) -> None:
    assert real("generators") == [True, False, True]


def test_a_graph_computes_when_it_is_replayed(real: Facts) -> None:
    values, codes = real("graph")
    assert values == [0.0, [3.0] * 3, 9.0, [5.0] * 3, 24.0]
    assert codes == [CAPTURE_BEGIN, CAPTURE_END, GRAPH_LAUNCH, GRAPH_LAUNCH]


def test_a_graph_uses_the_memory_of_its_temporaries_again(real: Facts) -> None:
    places, same, what_was_kept = real("memory_of_a_graph")
    assert places <= 5
    assert same
    assert what_was_kept


def test_waiting_breaks_a_capture(real: Facts) -> None:
    reading, ending = real("waiting_in_a_capture")
    assert reading == ["AcceleratorError", "CUDA error: operation not permitted when stream is capturing"]
    assert ending == ["AcceleratorError", "CUDA error: operation failed due to a previous error during capture"]


def test_small_values_are_right_where_numerics_are_skipped(skipped: Facts) -> None:
    assert skipped("small_values") == [45, [7, 8, 9]]


def test_replays_compute_small_values_where_numerics_are_skipped(skipped: Facts) -> None:
    assert skipped("small_values_of_a_graph") == [[11.0] * 3, [11.0] * 3, 0.0]


def test_large_tensors_have_shapes_only_where_numerics_are_skipped(skipped: Facts) -> None:
    assert skipped("large_shapes") == [[1 << 20, 1 << 10], 0.0]
