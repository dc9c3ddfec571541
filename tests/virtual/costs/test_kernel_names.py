"""Kernels' names on GPUs that were not measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unstall.virtual.costs.gpu_file import gpu_named, gpu_names
from unstall.virtual.costs.kernel_names import in_half, name_on, needed_capability
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.signature import Signature, TensorSpec, parse

_T4, _A100, _H200 = (7, 5), (8, 0), (9, 0)
_NVJET = "nvjet_sm90_tst_128x64_64x4_1x1_h_bz_TNT"
_XMMA = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel"
_WGRAD = "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_256x64_16x4_nhwc_align4>(Params)"
_NATIVE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float)"
_SORT = "void at_cuda_detail::cub::detail::Kernel<thrust::THRUST_300001_SM_750_800_860_900_1000_1200_NS::count>(int)"


@pytest.mark.parametrize(
    ("capability", "kernel", "named"),
    [
        (_H200, _NVJET, _NVJET),
        (_A100, _NVJET, "addmm_bfloat16_kernel"),
        (_T4, _NVJET, "addmm_bfloat16_kernel"),
        (_A100, _XMMA, _XMMA),
        (_T4, _XMMA, "addmm_bfloat16_kernel"),
        (_T4, _WGRAD, "addmm_wgrad_bfloat16_kernel"),
        (_T4, _NATIVE, _NATIVE),
        (_T4, _SORT, _SORT),
    ],
)
def test_a_kernel_that_a_gpu_cannot_have_is_named_by_its_operator(
    capability: tuple[int, int], kernel: str, named: str
) -> None:
    assert name_on(capability, kernel, "addmm", "bfloat16") == named


@pytest.mark.parametrize("gpu", [pytest.param(gpu, marks=[] if gpu == "t4" else pytest.mark.ci) for gpu in gpu_names()])
def test_no_kernel_of_a_gpu_names_a_newer_architecture(gpu: str) -> None:
    calls = json.loads(Path(__file__).with_name("in_models.json").read_text())
    costs = costs_of(gpu)

    names = {kernel.name for raw, *_ in calls for kernel in costs.cost(parse(raw)).kernels}

    capability = gpu_named(gpu).file.device.capability
    assert [name for name in names if needed_capability(name) > capability] == []
    assert any("at::native" in name for name in names)
    assert any("sm80_xmma" in name for name in names) == (capability >= _A100)


@pytest.mark.parametrize(("source", "result"), [("float32", "float16"), ("float16", "float32"), ("int32", "float64")])
def test_a_copy_that_converts_is_a_kernel_and_not_a_copy_of_bytes(source: str, result: str) -> None:
    to, of = (TensorSpec(dtype, (300, 200), (200, 1)) for dtype in (result, source))

    (kernel,) = costs_of("h200").cost(Signature("aten::copy_", "", (to, of, False), (to,))).kernels

    assert "elementwise_kernel" in kernel.name
    assert "bfloat16" not in kernel.name or "float16" not in (source, result)


@pytest.mark.parametrize(
    ("kernel", "other"),
    [
        (
            "sm90_fprop_bf16bf16_bf16f32_f32_nhwc",
            "sm90_fprop_f16f16_f16f32_f32_nhwc",
        ),
        ("cudnn::bn_fw<__nv_bfloat16, float>", "cudnn::bn_fw<__half, float>"),
        ("nvjet_sm90_tss_64x8_64x16_1x2_v_bz_NNT", "nvjet_sm90_hss_64x8_64x16_1x2_v_bz_NNT"),
        ("max_pool<c10::BFloat16>", "max_pool<c10::Half>"),
    ],
)
def test_kernels_for_both_types_of_16_bits_have_like_names(kernel: str, other: str) -> None:
    assert in_half(kernel, "float16") == in_half(other, "float16") == other
    assert in_half(kernel, "bfloat16") == in_half(other, "bfloat16") == kernel
