"""Device-bound runs: what speaks for trying a faster kernel."""

from __future__ import annotations

import pytest
from findings import found, only, place, result_of
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.diagnose.rules.device_work import DEVICE_WORK

SGEMM = "ampere_sgemm_128x64_nn"
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1"
NVJET = "nvjet_sm90_tst_64x8_64x16_2x4_h_bz_TNT"  # bfloat16
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4> >"
FUSED = f"{FOREACH}(FusedAdamMathFunctor<float, 4>)"
TO_NHWC = "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>"


def run_of(
    *kernels: str, device_us: float = 200, optimizer: bool = False, host_us: float = 5, gpu: str = "NVIDIA H200"
) -> TraceBuilder:
    """Three steps, each with a bf16 product of 200 µs and then these kernels."""
    trace = TraceBuilder(devices=(gpu,))
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::mm"):
                trace.launch(NVJET, 200)
            if optimizer:
                with trace.optimizer("Adam"):
                    for kernel in kernels:
                        trace.launch(kernel, device_us, host_us=host_us)
            else:
                with trace.frame("model/net.py", 30, "forward"), trace.op("aten::mm"):
                    for kernel in kernels:
                        trace.launch(kernel, device_us, host_us=host_us)
    return trace


def trials(trace: TraceBuilder) -> set[str]:
    return {finding.rule for finding in result_of(trace).findings} & set(DEVICE_WORK)


def test_products_in_fp32_are_told_with_their_device_time_and_the_line() -> None:
    finding = only(run_of(SGEMM), "fp32-products")
    assert place(finding) == ("model/net.py", 30, "forward")
    assert finding.exposed_ns == 200_000
    assert finding.count == 3
    assert "set_float32_matmul_precision" in finding.fix
    assert f"longest {SGEMM}, 200 µs a step" in finding.saw
    assert not finding.harmless


FP32_CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3_g1_ffma"
TF32_CONVOLUTION = "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32"


def test_each_kind_of_product_has_a_switch_of_its_own() -> None:
    products, convolutions, both = (
        only(run_of(*kernels), "fp32-products") for kernels in ([SGEMM], [FP32_CONVOLUTION], [SGEMM, FP32_CONVOLUTION])
    )
    assert [each.title.partition(" multiply")[0] for each in (products, convolutions, both)] == [
        "Matrix products",
        "Convolutions",
        "Matrix products and convolutions",
    ]
    matmul, conv = "set_float32_matmul_precision('high')", "conv.fp32_precision = 'tf32'"
    assert [[switch in each.fix for switch in (matmul, conv)] for each in (products, convolutions, both)] == [
        [True, False],
        [False, True],
        [True, True],
    ]


def test_a_convolution_for_which_cudnn_chose_fp32_is_not_advised_what_is_allowed_already() -> None:
    """With few input channels, for example. Another convolution shows that TF32 is allowed."""
    assert found(run_of(FP32_CONVOLUTION, TF32_CONVOLUTION), "fp32-products") == []
    finding = only(run_of(FP32_CONVOLUTION, TF32_CONVOLUTION, SGEMM), "fp32-products")
    assert (finding.title.partition(" multiply")[0], finding.count) == ("Matrix products", 3)


def test_what_the_recording_tells_of_the_setting_counts_too() -> None:
    timeline = run_of(FP32_CONVOLUTION, SGEMM).timeline()
    allowed = replace(timeline, meta=replace(timeline.meta, tf32_convolutions=True))
    (finding,) = (each for each in explain(allowed).result.findings if each.rule == "fp32-products")
    assert finding.title.startswith("Matrix products multiply in fp32")


def test_products_in_tf32_say_nothing_of_convolutions() -> None:
    assert only(run_of(FP32_CONVOLUTION, TF32), "fp32-products").title.startswith("Convolutions multiply in fp32")


@pytest.mark.parametrize("gpu", ["Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA GeForce RTX 2080 Ti"])
def test_no_gpu_is_advised_a_type_that_it_does_not_multiply_in(gpu: str) -> None:
    finding = only(run_of("volta_sgemm_128x64_nn", gpu=gpu), "fp32-products")
    assert "torch.autocast('cuda', torch.float16)" in finding.fix
    assert "set_float32_matmul_precision" not in finding.fix


BF16_BEFORE_AMPERE = (
    "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4, false>",
    "void cutlass::Kernel2<cutlass_75_simt_gemm_bf16_64x64_tn_align1>",
    "mm_bfloat16_kernel",
    "convolution_backward_wgrad_bfloat16_kernel",
)


@pytest.mark.parametrize("kernel", BF16_BEFORE_AMPERE)
def test_products_in_bfloat16_are_told_of_float16_where_tensor_cores_do_not_multiply_in_it(kernel: str) -> None:
    finding = only(run_of(kernel, gpu="Tesla T4"), "bf16-products")
    assert finding.exposed_ns == 200_000
    assert "torch.autocast('cuda', torch.float16)" in finding.fix
    assert trials(run_of(kernel, gpu="NVIDIA H200")) == set()


def test_other_kernels_of_bfloat16_are_no_products() -> None:
    kernels = (TO_NHWC.replace("float", "__nv_bfloat16"), ADD.replace("float", "c10::BFloat16"), SGEMM)
    assert "bf16-products" not in trials(run_of(*kernels, gpu="Tesla T4"))


@pytest.mark.parametrize(
    "kernel",
    [
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4",
        "void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>",
        "cudnn_infer_ampere_scudnn_128x64_relu_medium_nn_v1",
        "addmm_float32_kernel",
        "convolution_backward_wgrad_float32_kernel",
    ],
)
def test_names_of_fp32_kernels(kernel: str) -> None:
    assert trials(run_of(kernel)) == {"fp32-products"}


@pytest.mark.parametrize(
    "kernel",
    [
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_64x64_tn_align1>",
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
        "ampere_h16816gemm_128x128_ldg8_stages_32x5_nn",
        "nvjet_sm90_tst_64x16_64x16_4x2_h_bz_bias_TNT",
    ],
)
def test_kernels_of_tensor_cores_in_half_precision_are_fine(kernel: str) -> None:
    assert trials(run_of(kernel)) == set()


@pytest.mark.parametrize(
    "kernel", [TF32, "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4>"]
)
def test_products_in_tf32_are_told_of_bfloat16(kernel: str) -> None:
    assert trials(run_of(kernel)) == {"tf32-products"}
    assert "torch.bfloat16" in only(run_of(kernel), "tf32-products").fix


def test_changes_of_layout_speak_for_channels_last() -> None:
    finding = only(run_of(TO_NHWC), "layout-copies")
    assert "channels_last" in finding.fix
    assert finding.exposed_ns == 200_000


def test_an_optimizer_of_many_kernels_is_told_of_the_fused_one() -> None:
    assert "fused=True" in only(run_of(FOREACH, FOREACH, optimizer=True), "unfused-optimizer").fix
    assert trials(run_of(FUSED, optimizer=True)) == set()


def test_rows_of_elementwise_kernels_speak_for_compiling() -> None:
    finding = only(run_of(*[ADD] * 5), "elementwise-rows")
    assert (finding.count, finding.exposed_ns) == (15, 1_000_000)
    assert "torch.compile" in finding.fix
    assert trials(run_of(ADD, NVJET, ADD, ADD, NVJET)) == set()


def test_a_device_that_mostly_idles_is_told_of_none() -> None:
    assert trials(run_of(SGEMM, host_us=2_000)) == set()


def test_kernels_of_next_to_no_time_are_not_told() -> None:
    assert found(run_of(SGEMM, device_us=2), "fp32-products") == []


def batch_of(
    *grids: list[int] | None, multiprocessors: int | None = 132, streams: int = 1, beside: int = 0
) -> TraceBuilder:
    """Three steps of kernels of 100 µs with these grids, on each of so many streams, and of one of `beside` µs with a
    block per SM on another stream."""
    trace = TraceBuilder(multiprocessors=multiprocessors)
    for _ in range(3):
        with trace.step(), trace.frame("model/net.py", 30, "forward"), trace.op("aten::mm"):
            if beside:
                trace.launch(NVJET, beside, stream=99, grid=[132, 1, 1])
            for grid in grids:
                for stream in range(streams):
                    trace.launch(NVJET, 100, stream=stream, grid=grid)
    return trace


def test_kernels_of_few_blocks_speak_for_a_larger_batch() -> None:
    finding = only(batch_of([8, 8, 1], [16, 1, 1], [66, 1, 1], [1000, 1, 1]), "small-grids")

    assert place(finding) == ("model/net.py", 30, "forward")
    assert finding.saw.startswith("9 kernels of at most 66 blocks, on 132 SMs, take 75.0 % of the busy time; longest ")
    assert (finding.count, finding.exposed_ns) == (9, 300_000)
    assert "larger batch" in finding.fix


@pytest.mark.parametrize(
    "trace",
    [
        batch_of(
            [67, 1, 1], [128, 1, 1]
        ),  # may fill the device with a block per SM, as products do that loop over tiles
        batch_of([8, 1, 1], [200, 1, 1], [200, 1, 1]),  # a third of the time
        batch_of([8, 1, 1], None, None),
        batch_of([8, 1, 1], multiprocessors=None),
        batch_of([8, 1, 1], multiprocessors=0),
        batch_of([66, 1, 1], streams=4),  # together they fill it
        batch_of([8, 1, 1], beside=80),  # the device is full meanwhile
    ],
)
def test_a_device_that_is_full_or_of_which_that_is_not_known_is_told_of_none(trace: TraceBuilder) -> None:
    assert trials(trace) == set()


def test_small_kernels_of_two_streams_are_small_together() -> None:
    assert trials(batch_of([16, 1, 1], streams=2)) == {"small-grids"}


def test_each_device_has_its_own_number_of_multiprocessors() -> None:
    trace = TraceBuilder(multiprocessors=132)  # of device 0 alone
    for _ in range(3):
        with trace.step():
            trace.launch(NVJET, 100, grid=[8, 1, 1], device=2**31 - 1)

    assert trials(trace) == set()
