"""The file of a GPU that `unstall calibrate` measured."""

from __future__ import annotations

import pytest

from unstall.virtual.costs.families import FAMILIES
from unstall.virtual.costs.gpu_file import GpuFile
from unstall.virtual.costs.launches import MeasuredKernel
from unstall.virtual.costs.measured_gpu import Tables, assemble
from unstall.virtual.costs.model import Startup
from unstall.virtual.costs.occupancy import Block, Launch
from unstall.virtual.costs.origins import PARTS
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides
from unstall.virtual.costs.startup_fit import MeasuredStartup
from unstall.virtual.costs.tables import of_rows

_FACTS = {
    "device": {
        "name": "Test GPU",
        "capability": (9, 0),
        "multiprocessors": 100,
        "l2_bytes": 1 << 20,
        "total_bytes": 1 << 34,
        "context_bytes": 1 << 28,
    },
    "peaks": {"float32": 50_000.0, "bfloat16": 800_000.0, "float64": 50_000.0},
    "copies": [["DtoD", False, 512, 800, 0], ["DtoD", False, 4 << 20, 2_800, 0], ["DtoD", False, 1 << 28, 130_000, 0]],
    "memset": [[512, 1_900]],
    "queue": {"capacity": 1_022, "sleep_cycles_per_us": 1_979.0},
    "latencies": {"gap": 960, "event": 1_088, "wake": 2_651, "timed_event": 1_280, "tiny_kernel": 896},
    "graph": {"period": 1_152},
    "calls": {"bound_mul_in_place": 9_000, "mul_in_place": 7_000},
}


def _assembled(first_uses: MeasuredStartup | None) -> GpuFile:
    return assemble(_FACTS, Tables(), {}, first_uses, "a Test GPU: 9 calls", 0.05)


@pytest.mark.parametrize(("first_uses", "kind"), [(MeasuredStartup(Startup(), {}), "measured"), (None, "assumed")])
def test_it_says_where_each_part_comes_from(first_uses: MeasuredStartup | None, kind: str) -> None:
    file = _assembled(first_uses)

    assert tuple(file.origins) == PARTS
    assert (file.origins["copies"].kind, file.origins["copies"].of) == ("measured", "a Test GPU: 9 calls")
    assert file.origins["first uses"].kind == kind


def test_what_is_not_measured_of_the_host_is_not_said_to_be() -> None:
    origins = _assembled(None).origins

    assert origins["CPU operators"].kind == "assumed"
    assert "an H200's host" in origins["host calls"].of


def test_it_has_the_thread_blocks_of_kernels_and_calls() -> None:
    tables = Tables()
    for size, threads in ((1 << 12, 128), (1 << 20, 64)):
        x = TensorSpec("float32", (size,), (1,))
        kernel = MeasuredKernel("exp_kernel", 2_000, Launch(size // 512, Block(threads, 32)))
        tables.add((Signature("aten::exp", "", (x,), (x,)), [kernel], [], []))
    file = assemble(_FACTS, tables, {}, None, "a Test GPU", 0.05)
    (table,) = file.tables["elementwise"].values()
    family = FAMILIES["elementwise"]

    assert file.kernel_blocks == [Block(128, 32)]  # the larger one
    assert [call.blocks for call in of_rows(table, len(family.axes), file.sequences)] == [(8,), (2_048,)]


def test_it_has_what_calls_take_in_loops() -> None:
    tables = Tables()
    x = TensorSpec("float32", (1 << 20,), (1,))
    tables.add((Signature("aten::exp", "", (x,), (x,)), [MeasuredKernel("exp_kernel", 2_000)], [], []), (1_900, 1_300))
    file = assemble(_FACTS, tables, {}, None, "a Test GPU", 0.05)
    (table,) = file.tables["elementwise"].values()

    (call,) = of_rows(table, len(FAMILIES["elementwise"].axes), file.sequences)
    assert call.repeats == (1_900, 1_300)


def test_the_orthogonal_factor_of_one_matrix_is_measured_with_many() -> None:
    x, q, r = (
        TensorSpec("float32", sizes, contiguous_strides(sizes)) for sizes in ((20, 6, 4), (20, 6, 4), (20, 4, 4))
    )
    each = [MeasuredKernel("copy_info_kernel(int, int*)", 600), MeasuredKernel("orgqr_step1_kernel<float>", 700)]
    kernels = [MeasuredKernel("geqr2_batch_kernel", 4_000), *each * 20]
    tables = Tables()

    tables.add((Signature("aten::linalg_qr", "", (x, "reduced"), (q, r)), kernels, [], []))
    kept = assemble(_FACTS, tables, {}, None, "a Test GPU", 0.05)

    assert sorted(kept.tables["other"]) == ["float32 geqrf", "float32 linalg_householder_product"]
    assert sorted(map(len, kept.sequences)) == [1, 2]
