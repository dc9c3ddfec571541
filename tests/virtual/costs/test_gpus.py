"""The GPUs' files, and what operators cost on them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.errors import UsageError
from unstall.replay.program import WHOLE
from unstall.timeline.columns import CopyDirection, DeviceKind
from unstall.virtual.costs.families import FAMILIES, describe
from unstall.virtual.costs.gpu_file import Gpu, decode, encode, gpu_named, gpu_names
from unstall.virtual.costs.measured_costs import MeasuredCosts, costs_of
from unstall.virtual.costs.measured_gpu import in_this_host
from unstall.virtual.costs.origins import PARTS
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides, parse
from unstall.virtual.costs.tables import of_rows

_IN_MODELS = Path(__file__).with_name("in_models.json")

_KERNELS = len(gpu_named("h200").file.kernels)


def _tensor(*sizes: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))


def _linear(rows: int, wide: int, deep: int) -> Signature:
    weight = TensorSpec("float32", (deep, wide), (1, deep))
    return Signature("aten::addmm", "", (_tensor(wide), _tensor(rows, deep), weight), (_tensor(rows, wide),))


def test_each_module_sets_up_what_one_dtype_shares() -> None:
    file = gpu_named("h200").file
    assert file.startup is not None
    groups = [set(modules) for _, modules in file.startup.shared]
    assert sum(map(len, groups)) == len(set[int]().union(*groups))
    for kernel, module in zip(file.kernels, file.kernel_modules, strict=True):
        if re.search(r"bf16|bfloat16", kernel):
            assert module not in groups[0], f"{kernel} sets up cuBLAS for float32"


@pytest.mark.parametrize("name", gpu_names())
def test_every_file_is_read_and_written_as_it_is(name: str) -> None:
    file = gpu_named(name).file

    assert decode(encode(file), name) == file


@pytest.mark.parametrize("name", gpu_names())
def test_every_file_says_where_each_part_comes_from(name: str) -> None:
    file = gpu_named(name).file

    assert tuple(file.origins) == PARTS
    kinds = {part: origin.kind for part, origin in file.origins.items()}
    assert (kinds["kernel times"] == "measured") == (file.source == "measured")


@pytest.mark.parametrize("name", gpu_names())
def test_a_gpu_answers_for_a_linear_layer(name: str) -> None:
    cost = costs_of(name).cost(_linear(1000, 700, 700))

    assert cost.kernels
    assert dict(cost.workspaces)["cublaslt"] == 1 << 20


def test_a_file_of_less_than_eleven_megabytes_holds_a_gpu() -> None:
    assert len(encode(gpu_named("h200").file)) < 11_000_000


def test_operators_within_models_take_what_they_took() -> None:
    """Calls of seven models, the costliest of each operator, as an H200 ran them.

    The suite's grid was made denser after a look at what was wrong of them: they are a check, and no blind test.
    """
    costs = costs_of("h200")
    calls = json.loads(_IN_MODELS.read_text())

    errors = []
    together = [0, 0]
    for raw, kernels, total_ns in calls:
        told = costs.cost(parse(raw))
        ns = sum(kernel.duration_ns for kernel in told.kernels)
        errors.append((abs(ns / total_ns - 1), len(told.kernels) == kernels))
        together[0] += ns
        together[1] += total_ns

    assert sorted(error for error, _ in errors)[len(errors) // 2] < 0.10
    assert sum(same for _, same in errors) / len(errors) > 0.9
    assert together[0] == pytest.approx(together[1], rel=0.05)


def test_a_view_runs_nothing() -> None:
    x = _tensor(4, 4)

    assert costs_of("h200").cost(Signature("aten::view", "", (x, (16,)), (x,))).kernels == ()


def test_an_empty_result_runs_nothing() -> None:
    assert (
        costs_of("h200").cost(Signature("aten::add", "Tensor", (_tensor(0), _tensor(0)), (_tensor(0),))).kernels == ()
    )


def test_an_operator_nobody_measured_takes_what_its_bytes_do() -> None:
    x = _tensor(1 << 26)

    (kernel,) = costs_of("h200").cost(Signature("mine::twiddle", "", (x,), (x,))).kernels

    assert kernel.name == "mine::twiddle_kernel"
    assert kernel.duration_ns == pytest.approx(2 * x.distinct_bytes / 4_200, rel=0.25)


def test_an_operator_nobody_measured_that_is_not_element_wise_has_no_cost_but_a_guess() -> None:
    """The simulation then guesses, and a note of the report names the operator."""
    call = Signature("mine::fold", "", (_tensor(1000, 64),), (_tensor(500, 128),))

    with pytest.raises(NotImplementedError):
        costs_of("h200").cost(call)
    assert costs_of("h200").guess(call).kernels


def test_a_product_with_a_vector_runs_the_kernel_for_vectors() -> None:
    rows, columns = 16_000, 400  # 15,980 x 408 took an H200 15.1 us
    matrix, vector, out = _tensor(rows, columns), _tensor(columns), _tensor(rows)

    (kernel,) = costs_of("h200").cost(Signature("aten::addmv_", "", (out, matrix, vector, 0, 1), (out,))).kernels

    assert "gemv" in kernel.name
    assert 13_000 < kernel.duration_ns < 18_000


def test_a_split_product_clears_its_counters_first() -> None:
    kinds = {
        kernel.kind
        for rows in (1, 8, 16, 64, 197)
        for kernel in costs_of("h200").cost(_linear(rows, 768, 3072)).kernels
    }

    assert kinds == {DeviceKind.KERNEL, DeviceKind.MEMSET}


def test_a_slower_gpu_takes_longer() -> None:
    times = [
        costs_of(name).cost(_linear(4096, 4096, 4096)).kernels[0].duration_ns for name in ("h200", "a100-80g", "t4")
    ]

    assert times == sorted(times)
    assert times[2] / times[0] == pytest.approx(51.4 / 4.4, rel=0.05)


@pytest.mark.parametrize("sizes", [(3, 64, 7, 2, 224), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (3, 768, 16, 16, 224)])
def test_convolutions_of_a_gpu_without_tf32_are_as_much_slower_as_its_rates_are_lower(sizes: tuple[int, ...]) -> None:
    channels, kept, kernel, stride, edge = sizes
    out = (edge - kernel + 2 * (kernel // 4)) // stride + 1
    tensors = _tensor(32, channels, edge, edge), _tensor(kept, channels, kernel, kernel)
    padding = (kernel // 4, kernel // 4)
    call = Signature(
        "aten::convolution",
        "",
        (*tensors, None, (stride, stride), padding, (1, 1), False, (0, 0), 1),
        (_tensor(32, kept, out, out),),
        precision="ieee",
    )
    real, slow, usual = (
        sum(kernel.duration_ns for kernel in costs_of(name).cost(replace(call, precision=precision)).kernels)
        for name, precision in (("h200", "ieee"), ("t4", "ieee"), ("t4", ""))
    )
    assert 3 < slow / real < 17.5  # 11.7 times the FLOPs, of which cuDNN wastes fewer, and 17 times the bandwidth
    assert usual == slow


@pytest.mark.parametrize(("dilation", "times"), [(1, 1.2), (2, 2.25)])
def test_a_gpu_without_tensor_cores_for_them_computes_3_x_3_filters_by_winograds_algorithm(
    dilation: int, times: float
) -> None:
    x, weight = _tensor(32, 256, 56, 56), _tensor(256, 256, 3, 3)
    apart = (dilation, dilation)
    call = Signature("aten::convolution", "", (x, weight, None, (1, 1), apart, apart, False, (0, 0), 1), (x,))
    products = 2 * 32 * 56 * 56 * 256 * 256 * 9 / 2.25 / 4_400  # at the rate of a T4
    (kernel,) = costs_of("t4").cost(call).kernels
    assert kernel.duration_ns == pytest.approx(times * products, rel=0.2)


def test_a_small_batch_fills_a_small_gpu() -> None:
    def ns(name: str, batch: int) -> float:
        x, weight = _tensor(batch, 256, 28, 28, dtype="float16"), _tensor(256, 256, 3, 3, dtype="float16")
        call = Signature("aten::convolution", "", (x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1), (x,))
        return sum(kernel.duration_ns for kernel in costs_of(name).cost(call).kernels) / batch

    assert ns("h200", 8) > 1.25 * ns("h200", 64)
    assert ns("t4", 8) < 1.25 * ns("t4", 64)


@pytest.mark.parametrize("name", ["h200", "t4"])
def test_a_tensor_that_a_call_reads_twice_is_moved_once(name: str) -> None:
    x = _tensor(64 << 20)
    again = replace(x, repeated=True)
    twice, once = (
        costs_of(name).cost(Signature("aten::mul", "Tensor", (x, other), (x,))).kernels[0] for other in (x, again)
    )
    assert once.duration_ns / twice.duration_ns == pytest.approx(2 / 3, rel=0.01)
    assert once.again == twice.again


def test_a_product_that_is_added_in_place_takes_as_long_as_one_of_its_own() -> None:
    a, b = _tensor(4, 512, 512), _tensor(512, 512)

    def ns(name: str, *given: TensorSpec) -> int:
        cost = costs_of("h200").cost(Signature(f"aten::{name}", "", (*given, 1, 1), (given[0],)))
        return sum(kernel.duration_ns for kernel in cost.kernels)

    assert ns("addmm_", b, b, b) == ns("addmm", b, b, b)
    assert ns("baddbmm_", a, a, a) == ns("baddbmm", a, a, a)
    assert ns("addbmm", b, a, a) == ns("addbmm_", b, a, a) == 4 * ns("addmm", b, b, b)


@pytest.mark.parametrize("operator", ["native_layer_norm", "sub", "_log_softmax", "exp"])
def test_both_data_types_of_16_bits_take_as_long(operator: str) -> None:
    def ns(dtype: str) -> int:
        x, row = _tensor(8192, 4096, dtype=dtype), _tensor(4096, dtype=dtype)
        given = {
            "native_layer_norm": (x, (4096,), row, row, 1e-5),
            "sub": (x, row, 1),
            "_log_softmax": (x, -1, False),
        }.get(operator, (x,))
        cost = costs_of("h200").cost(Signature(f"aten::{operator}", "Tensor" * (operator == "sub"), given, (x,)))
        return sum(kernel.duration_ns for kernel in cost.kernels)

    assert ns("float16") == pytest.approx(ns("bfloat16"), rel=0.1)


@given(
    name=st.sampled_from(["h200", "t4"]),
    operator=st.sampled_from(["add", "sub", "mul", "div", "mul_", "maximum", "threshold_backward"]),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    size=st.integers(1 << 20, 1 << 30),
)
def test_no_element_wise_kernel_is_faster_than_the_memory_of_the_data_sheet(
    name: str, operator: str, dtype: str, size: int
) -> None:
    x = _tensor(size, dtype=dtype)
    more = {"add": (1,), "sub": (1,), "threshold_backward": (0,)}.get(operator, ())
    kernel = costs_of(name).cost(Signature(f"aten::{operator}", "Tensor", (x, x, *more), (x,))).kernels[0]
    device, sheet = gpu_named(name).file.device, {"h200": 4_800, "t4": 320}[name]
    least = (3 * size * x.item_bytes - device.l2_bytes) / (1.02 * sheet)
    assert kernel.duration_ns >= least
    assert kernel.duration_ns * min(kernel.again or WHOLE, WHOLE) / WHOLE >= least - 1


def test_what_a_call_writes_to_is_not_read_once_less() -> None:
    x = _tensor(64 << 20)
    plain = Signature("aten::add", "Tensor", (x, x, 1), (x,))
    into = Signature("aten::add", "out", (x, x, 1, replace(x, repeated=True)), (x,))
    assert costs_of("h200").cost(into).kernels[0].duration_ns == costs_of("h200").cost(plain).kernels[0].duration_ns


def test_few_rows_take_as_long_as_one_and_leave_the_rest_of_the_device_idle() -> None:
    """A thread block has each row. A softmax of 8 x 2,000,000 took 764 us on an H100. The widest that was measured is a
    fortieth of it, and its data fits into the L2 cache.
    """

    def softmax(rows: int) -> Signature:
        return Signature("aten::_softmax", "", (_tensor(rows, 2_000_000), -1, False), (_tensor(rows, 2_000_000),))

    one, eight = (costs_of("h100").cost(softmax(rows)).kernels[0] for rows in (1, 8))
    assert eight.duration_ns == pytest.approx(one.duration_ns, rel=0.25)
    assert eight.duration_ns == pytest.approx(764_000, rel=0.4)
    assert one.share < eight.share < 250


def test_copies_grow_with_their_size_and_pinned_ones_are_faster() -> None:
    costs = costs_of("h200")
    pinned = [costs.copy_ns(size, CopyDirection.HOST_TO_DEVICE, True) for size in (4, 1 << 20, 1 << 26, 1 << 30)]

    assert pinned == sorted(pinned)
    assert pinned[-1] == pytest.approx((1 << 30) / 55, rel=0.1)
    assert costs.copy_ns(1 << 26, CopyDirection.HOST_TO_DEVICE, False) > 3 * pinned[2]


def test_a_gpu_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="h200"):
        gpu_named("h900")


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "unstall.gpu/9"},
        {"limits": {"speed": 1}},
        {"host_pace": 0.0},
        {"host": {"cold_others": 12, "warm_others": 12}},
        {"host": {"cold_others": 0}},
        {"like": "t4"},
        {"sequences": [[99_999]]},
        {"tables": {"poetry": {}}},
        {"memsets": []},
        {"origins": {"colour": {"kind": "measured", "of": "an H200"}}},
        {"origins": {"copies": {"kind": "guessed", "of": "an H200"}}},
        {"startup": {"modules": [-1]}, "kernel_modules": []},
        {"startup": {"init": 10**15}, "kernel_modules": []},
        {"startup": {"cold": {"brief_ns": 0}}, "kernel_modules": []},
        {"startup": {"early": 1e9}, "kernel_modules": []},
        {"kernel_blocks": [[128, 32, 0]]},
        {"kernel_blocks": [[-1, 32, 0]] * _KERNELS},
        {"kernel_blocks": [[10**400, 32, 0]] * _KERNELS},
        {"startup": {"modules": [5], "shared": [[7, [1]]]}, "kernel_modules": []},
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(change: dict[str, object]) -> None:
    file = gpu_named("h200").file
    document = json.loads(encode(msgspec.structs.replace(file, tables={"sparse": file.tables["sparse"]})))

    with pytest.raises(UsageError, match=r"^mine\.json: not a GPU's description"):
        decode(json.dumps(document | change).encode(), "mine.json")


def test_a_file_of_calibrate_is_a_gpu_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(encode(gpu_named("l4").file))

    gpu: Gpu = gpu_named(str(path))

    assert gpu.name == "mine"
    assert gpu.facts.name == "NVIDIA L4"


@pytest.mark.parametrize(("name", "meant"), [("a100", "a100-80g"), ("a100-80gb", "a100-80g"), ("4090", "rtx4090")])
def test_a_name_that_is_nearly_a_gpus_is_asked_about(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=rf"; did you mean {meant}\?$"):
        gpu_named(name)


def test_a_name_that_is_like_none_is_not() -> None:
    with pytest.raises(UsageError, match=r"`unstall calibrate` wrote$"):
        gpu_named("potato")


@pytest.mark.parametrize(("name", "known"), [("linalg_vector_norm", True), ("linalg_qr", True), ("linalg_eig", False)])
def test_linear_algebra_that_was_not_measured_costs_a_guess(name: str, known: bool) -> None:
    tensor = TensorSpec("float32", (512, 512), (512, 1))
    signature = Signature(f"aten::{name}", "", (tensor,), (tensor,))
    if known:
        assert costs_of("h200").cost(signature).kernels
    else:
        with pytest.raises(NotImplementedError):
            costs_of("h200").cost(signature)
    assert costs_of("h200").guess(signature).kernels


def _rate(name: str, signature: Signature) -> float:
    """Returns the TFLOP/s of a call."""
    gpu = gpu_named(name)
    described = describe(signature)
    assert described is not None
    family, shape = described
    flops = family.work(shape.variants[0], shape.dims).flops
    ns = sum(each.duration_ns for each in MeasuredCosts(gpu, gpu.measured).cost(signature).kernels)
    return flops / ns / 1e3


def _product(dtype: str) -> Signature:
    one = TensorSpec(dtype, (4096, 4096), (4096, 1))
    return Signature("aten::mm", "", (one, one), (one,))


def _of_a_layer(dtype: str) -> Signature:
    x, weight = (TensorSpec(dtype, (4096, 4096), strides) for strides in ((4096, 1), (1, 4096)))
    return Signature("aten::mm", "", (x, weight), (x,))


def _convolution(dtype: str) -> Signature:
    x, weight = (TensorSpec(dtype, sizes, contiguous_strides(sizes)) for sizes in ((32, 128, 64, 64), (128, 128, 3, 3)))
    return Signature("aten::convolution", "", (x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1), (x,))


def test_a_t4_multiplies_in_bfloat16_no_faster_than_in_float32() -> None:
    assert _rate("t4", _product("bfloat16")) < 9 < 30 < _rate("t4", _product("float16"))


@pytest.mark.parametrize("name", ["t4", "rtx4090", "l4", "a100-80g"])
def test_convolutions_in_float32_are_no_faster_than_tf32_and_half_precision_allow(name: str) -> None:
    rate = _rate(name, _convolution("float32"))
    peaks = gpu_named(name).file.peaks
    most = peaks.half / 2 if gpu_named(name).file.device.capability[0] >= 8 else 2.25 * peaks.float32  # by Winograd's
    assert rate < most / 1e3


def _total_ns(name: str, call: Signature, precision: str) -> int:
    return sum(each.duration_ns for each in costs_of(name).cost(replace(call, precision=precision)).kernels)


@pytest.mark.parametrize("name", ["h200", "h100", "a100-80g", "l4"])
def test_products_in_tf32_run_at_half_of_the_rate_of_half_precision(name: str) -> None:
    """Those of a linear layer. In other layouts an H200 is slower: at most 360 and 260 TFLOP/s, and here 407."""
    call, peaks = _of_a_layer("float32"), gpu_named(name).file.peaks
    faster = _total_ns(name, call, "ieee") / _total_ns(name, call, "tf32")
    assert faster == pytest.approx(peaks.half / 2 / peaks.float32, rel=0.3)
    halves = _total_ns(name, call, "tf32") / _total_ns(name, _of_a_layer("bfloat16"), "")
    assert halves == pytest.approx(2, rel=0.15)


def test_products_are_in_ieee_and_convolutions_in_tf32_unless_torch_says_otherwise() -> None:
    for call, usual in ((_product("float32"), "ieee"), (_convolution("float32"), "tf32")):
        assert _total_ns("h100", call, "") == _total_ns("h100", call, usual)
    assert _total_ns("h100", _convolution("float32"), "ieee") > 2 * _total_ns("h100", _convolution("float32"), "tf32")


@pytest.mark.parametrize("call", [_product, _convolution])
def test_a_t4_has_no_tf32(call: Callable[[str], Signature]) -> None:
    assert len({_total_ns("t4", call("float32"), precision) for precision in ("", "tf32", "ieee")}) == 1


def test_only_tensor_cores_need_another_layout() -> None:
    """A T4 has them for half precision only."""
    for name, dtype, needed in (("h200", "float32", True), ("t4", "float32", False), ("t4", "float16", True)):
        kernels = costs_of(name).cost(_convolution(dtype)).kernels
        assert any("nchwToNhwc" in each.name for each in kernels) == needed


@pytest.mark.parametrize("call", [_product, _convolution])
def test_precisions_of_float32_are_nothing_to_calls_in_half_precision(call: Callable[[str], Signature]) -> None:
    assert len({_total_ns("h100", call("bfloat16"), precision) for precision in ("", "tf32", "ieee")}) == 1


def test_small_products_are_hardly_slower_if_tf32_is_allowed() -> None:
    for size in (16, 64, 200, 333):
        call = Signature("aten::mm", "", (_tensor(size, size), _tensor(size, size)), (_tensor(size, size),))
        assert _total_ns("h100", call, "tf32") <= 1.1 * _total_ns("h100", call, "ieee")


def test_no_kernel_of_a_product_in_tf32_is_named_after_bfloat16() -> None:
    *_, kernel = costs_of("h100").cost(replace(_product("float32"), precision="tf32")).kernels
    assert "tf32" in kernel.name
    assert "bf16" not in kernel.name


@pytest.mark.parametrize(("name", "dtype"), [("h100", "float32"), ("t4", "float16")])
def test_a_convolution_without_room_for_its_workspace_runs_without_and_no_faster(name: str, dtype: str) -> None:
    cost = costs_of(name).cost(_convolution(dtype))
    assert cost.temporaries
    assert cost.fallback is not None
    assert not cost.fallback.temporaries
    assert sum(each.duration_ns for each in cost.fallback.kernels) >= sum(each.duration_ns for each in cost.kernels)


def test_a_copy_that_a_convolution_needs_has_no_fallback() -> None:
    """torch makes it, not cuDNN."""
    call = _convolution("float32")
    strided = TensorSpec("float32", (32, 128, 64, 64), tuple(2 * each for each in call.tensors[0].strides))
    cost = costs_of("h100").cost(replace(call, inputs=(strided, *call.inputs[1:])))
    copied = 4 * 32 * 128 * 64 * 64
    assert cost.temporaries[0][0] == copied
    assert cost.fallback is not None
    assert cost.fallback.temporaries == ((copied,),)


@pytest.mark.parametrize("call", [_product, _convolution])
def test_no_kernel_of_a_call_in_float16_is_named_after_bfloat16(call: Callable[[str], Signature]) -> None:
    gpu = gpu_named("h100")
    names = [each.name for each in MeasuredCosts(gpu, gpu.measured).cost(call("float16")).kernels]
    assert names
    assert not any(re.search("bf16|bfloat16", name, re.IGNORECASE) for name in names)


def test_a_file_of_an_earlier_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"^mine: written by an earlier version. Measure the GPU again"):
        decode(encode(gpu_named("h200").file).replace(b"unstall.gpu/6", b"unstall.gpu/3", 1), "mine")


def _share(costs: MeasuredCosts, signature: Signature) -> int:
    return costs.cost(signature).kernels[-1].share


@pytest.mark.parametrize(("rows", "least", "most"), [(1 << 20, 300, 900), (1 << 28, 950, 1000)])
def test_a_kernel_uses_more_of_the_rate_of_memory_the_larger_it_is(rows: int, least: int, most: int) -> None:
    x = _tensor(rows)

    assert least <= _share(costs_of("h100"), Signature("aten::exp", "", (x,), (x,))) <= most


def test_a_memset_within_a_call_uses_what_it_writes_alone() -> None:
    memset, attention = costs_of("h100").cost(_attention()).kernels

    assert memset.kind == DeviceKind.MEMSET
    assert memset.share < 50 < attention.share


def test_a_topk_launches_a_kernel_of_the_module_of_sort() -> None:
    x, indices = _tensor(300, 5_000), _tensor(300, 7, dtype="int64")
    topk = Signature("aten::topk", "", (x, 7, -1, True, True), (_tensor(300, 7), indices))
    sort = Signature(
        "aten::sort", "", (_tensor(300, 500), -1, False), (_tensor(300, 500), _tensor(300, 500, dtype="int64"))
    )

    of_topk, of_sort = (
        {kernel.module for kernel in costs_of("h100").cost(each).kernels if kernel.kind == DeviceKind.KERNEL}
        for each in (topk, sort)
    )

    assert of_topk & of_sort - {-1}
    assert of_topk - of_sort


def test_a_product_with_one_contiguous_column_runs_the_kernel_of_vectors() -> None:
    rows, columns, result = _tensor(2500, 1, 1024), _tensor(2500, 1024, 1), _tensor(2500, 1, 1)

    (kernel,) = costs_of("h100").cost(Signature("aten::bmm", "", (rows, columns), (result,))).kernels

    assert "gemv" in kernel.name


def _attention() -> Signature:
    x = _tensor(8, 8, 256, 64, dtype="bfloat16")
    arguments = (x, x, x, None, False, 0.0, False, False)
    return Signature("aten::_scaled_dot_product_cudnn_attention", "", arguments, (x,))


def test_resizing_takes_as_long_as_there_are_channels_if_these_are_small() -> None:
    """A thread computes a pixel of each channel. 4,096 channels of 14 x 14 took 790 us on an H200."""

    def resized(batch: int) -> int:
        args = (_tensor(batch, 512, 14, 14), (28, 28), False, None, None)
        call = Signature("aten::upsample_bilinear2d", "", args, (_tensor(batch, 512, 28, 28),))
        return costs_of("h200").cost(call).kernels[0].duration_ns

    assert resized(8) == pytest.approx(790_000, rel=0.1)
    assert resized(16) == pytest.approx(2 * resized(8), rel=0.2)


@pytest.mark.parametrize(("sizes", "dtype"), [((4096, 512), "float32"), ((32, 64, 56, 56), "bfloat16")])
def test_batch_norms_of_rows_and_in_bfloat16_run_no_kernel_of_cudnn(sizes: tuple[int, ...], dtype: str) -> None:
    x, of_channels = _tensor(*sizes, dtype=dtype), _tensor(sizes[1])
    args = (x, *[of_channels] * 4, True, 0.1, 1e-5)
    kernels = (
        costs_of("h200").cost(Signature("aten::native_batch_norm", "", args, (x, of_channels, of_channels))).kernels
    )
    assert any("batch_norm_collect_statistics" in kernel.name for kernel in kernels)
    assert not any("cudnn" in kernel.name for kernel in kernels)


def test_a_scatter_in_place_takes_what_its_indices_do_however_large_the_table_is() -> None:
    """A one-hot encoding of 8,192 numbers below 4,096 took 5.2 us on an H200, beside the fill with zeros."""

    def placed(columns: int) -> int:
        table, index = _tensor(8192, columns, dtype="int64"), _tensor(8192, 1, dtype="int64")
        call = Signature("aten::scatter_", "value", (table, -1, index, 1), (table,))
        (kernel,) = costs_of("h200").cost(call).kernels
        return kernel.duration_ns

    assert placed(4096) < 4 * 5_200
    assert placed(4096) < 2 * placed(64)


def test_an_index_takes_longer_the_more_it_names() -> None:
    x = _tensor(1_000, 3_000)

    def ns(count: int) -> int:
        places = TensorSpec("int64", (count,), (1,))
        call = Signature("aten::index_add", "", (x, 0, places, _tensor(count, 3_000), 1), (x,))
        return sum(kernel.duration_ns for kernel in costs_of("h200").cost(call).kernels)

    assert 1.3 < ns(4_000) / ns(1_000) < 4


@pytest.mark.parametrize("name", ["h200", "h100"])
def test_a_host_at_another_pace_takes_as_much_longer_and_the_device_as_long(name: str, tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    gpu = gpu_named(name)
    path.write_bytes(encode(in_this_host(gpu, 0.5 * gpu.host_pace, "48 operators")))
    usual, here = costs_of(name), costs_of(str(path))

    assert here.host.launch == pytest.approx(usual.host.launch / 2, abs=1)
    assert here.host.few_uses == usual.host.few_uses
    assert here.host.staged_bytes_per_us == usual.host.staged_bytes_per_us
    call = _linear(64, 512, 512)
    assert here.cost(call).kernels == usual.cost(call).kernels
    assert here.cost(call).host_ns == pytest.approx(usual.cost(call).host_ns / 2, abs=1)
    assert here.limits == usual.limits
    assert here.startup == usual.startup


def test_a_linear_layer_whose_thread_blocks_do_not_fill_a_round_takes_what_h200s_took() -> None:
    """Six runs on H200s of five machines took 271.4 to 272.4 us for each of many calls."""
    x, weight = TensorSpec("float32", (10_000, 512), (512, 1)), TensorSpec("float32", (512, 1_024), (1, 512))
    call = Signature("aten::mm", "", (x, weight), (_tensor(10_000, 1_024),))

    assert _total_ns("h200", call, "") == pytest.approx(271_700, rel=0.03)


def test_products_in_bfloat16_are_predicted_from_those_in_float16_too() -> None:
    gpu = gpu_named("h200")
    tables, family = gpu.file.tables["product"], FAMILIES["product"]
    known, other = (
        {call.dims: call for call in of_rows(tables[f"{dtype} bias nt"], len(family.axes), gpu.file.sequences)}
        for dtype in ("bfloat16", "float16")
    )
    dims = next(dims for dims in other if dims not in known)
    _, rows, columns, deep, _ = dims
    x, weight = TensorSpec("bfloat16", (rows, deep), (deep, 1)), TensorSpec("bfloat16", (deep, columns), (1, deep))
    out = _tensor(rows, columns, dtype="bfloat16")
    call = Signature("aten::addmm", "", (_tensor(columns, dtype="bfloat16"), x, weight, 1, 1), (out,))

    assert _total_ns("h200", call, "") == pytest.approx(other[dims].total_ns, abs=3)
    assert not any("f16" in name.replace("bf16", "") for name in (k.name for k in costs_of("h200").cost(call).kernels))


@pytest.mark.parametrize(("unsafe", "waits"), [(True, 0), (False, 2)])
def test_a_sum_of_segments_waits_for_the_checks_of_their_lengths(unsafe: bool, waits: int) -> None:
    x, lengths, out = _tensor(3_000, 200), TensorSpec("int64", (60,), (1,)), _tensor(60, 200)
    call = Signature("aten::segment_reduce", "", (x, "sum", lengths, None, None, 0, unsafe, None), (out,))

    assert sum("DtoH" in kernel.name for kernel in costs_of("h200").cost(call).kernels) == waits


@pytest.mark.parametrize(("sizes", "divides"), [((600_000,), False), ((3_000, 200), True)])
def test_places_in_several_dimensions_are_divided_among_them(sizes: tuple[int, ...], divides: bool) -> None:
    found = TensorSpec("int64", (300_000, len(sizes)), (1, 300_000))
    kernels = costs_of("h200").cost(Signature("aten::nonzero", "", (_tensor(*sizes, dtype="bool"),), (found,))).kernels

    assert any("write_indices" in kernel.name for kernel in kernels) == divides


def test_lists_of_an_optimizer_are_in_the_cache_if_they_fit() -> None:
    """An H200 took 10.3 us for the twelve of 256 KB if it had just used them, and 18.4 us if not."""
    some = tuple(_tensor(65_536) for _ in range(12))

    assert _total_ns("h200", Signature("aten::_foreach_add_", "List", (some, some, 1), some), "") < 12_000


@pytest.mark.parametrize("name", ["h200", "t4", "l4"])
def test_copies_between_devices_are_no_faster_than_their_links(name: str) -> None:
    size, costs = 1 << 30, costs_of(name)
    ns = costs.copy_ns(size, CopyDirection.PEER_TO_PEER, False)
    assert size / ns == pytest.approx(gpu_named(name).links.bytes_per_ns, rel=0.01)
    assert ns > 2 * costs.copy_ns(size, CopyDirection.DEVICE_TO_DEVICE, False)
