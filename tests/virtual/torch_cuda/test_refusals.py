"""Calls that CUDA refuses though the CPU would compute them, in the words of an H200 with torch 2.11."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.torch_cuda.running import facts

_SAME = "RuntimeError: Expected all tensors to be on the same device, but "
_VARIES = "does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'"


def _said(code: str) -> str:
    told: dict[str, Any] = facts("refusals")
    found = [text for call, text in told.items() if call.startswith(code)]
    assert len(found) == 1
    return str(found[0])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("torch.ones(4, 4, device=d).long() @ torch.ones(4, 4, device=d).long()[0]", '"addmv_impl_cuda"'),
        ("torch.ones(4, 4, device=d).long()[0] @", '"dot"'),
        ("torch.bmm(", '"baddbmm_cuda"'),
        ("functional.linear(", '"addmm_cuda"'),
        ("functional.max_pool2d(torch.ones", '"max_pool2d_with_indices_out_cuda_frame"'),
        ("torch.cdist(", '"cdist_cuda"'),
    ],
)
def test_data_types_that_cuda_lacks_are_refused(code: str, words: str) -> None:
    assert _said(code).startswith(f"NotImplementedError: {words} not implemented for ")


@pytest.mark.parametrize(
    ("code", "kernel"),
    [
        ("functional.elu(", "elu_cuda"),
        ("functional.gelu(", "GeluCUDAKernelImpl"),
        ("torch.exp(", "exp_cuda"),
        ("torch.sigmoid(", "sigmoid_cuda"),
        ("torch.nn.functional.interpolate(", "upsample_nearest2d_out_frame"),
        ("torch.mode(", "cuda_mode"),
    ],
)
def test_a_data_type_that_both_lack_is_refused_in_the_name_of_cudas_kernel(code: str, kernel: str) -> None:
    assert _said(code).startswith(f'NotImplementedError: "{kernel}" not implemented for ')


def test_of_a_type_that_cuda_alone_has_it_says_that_the_virtual_gpu_lacks_it() -> None:
    assert _said("torch.tan(") == (
        "NotImplementedError: the virtual GPU cannot run aten::tan for 'ComplexHalf': it "
        "computes by kernels of the CPU, "
        "and torch's for this operator lack this type"
    )


def test_cudnn_convolves_no_integers() -> None:
    assert _said("functional.conv2d(") == "RuntimeError: getCudnnDataTypeFromScalarType() not supported for Long"


def test_what_cuda_takes_is_taken() -> None:
    for code in (
        "torch.ones(4, 4, device=d).long() +",
        "torch.zeros(4, device=d)[torch.tensor([1])]",
        "torch.zeros(4).index_put_",
        "torch.randperm(4, device=d,",
    ):
        assert _said(code) == "fine"


def test_a_tensor_of_the_cpu_takes_no_indices_and_no_generator_of_a_device() -> None:
    indices = "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor (cpu)"
    assert _said("torch.zeros(4)[torch") == indices
    for code in ("torch.randperm(4, generator", "torch.zeros(4).normal_"):
        assert _said(code) == "RuntimeError: Expected a 'cpu' device type for generator but found 'cuda'"
    assert _said("torch.randn(4, device=d, gen") == (
        "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'"
    )


@pytest.mark.parametrize(
    ("code", "words", "method"),
    [
        ("nn.Linear(4, 2)(", "mat1 is on cuda:0, different from other tensors on cpu", "addmm"),
        ("nn.Linear(4, 2).to", "mat1 is on cpu, different from other tensors on cuda:0", "addmm"),
        ("torch.ones(4, 4) @", "mat2 is on cuda:0, different from other tensors on cpu", "mm"),
        ("torch.ones(4, 4, device=d) @", "mat2 is on cpu, different from other tensors on cuda:0", "mm"),
        (
            "torch.ones(4, 4, device=d).index",
            "index is on cpu, different from other tensors on cuda:0",
            "_index_select",
        ),
        ("torch.mm(", "self is on cuda:0, different from other tensors on cpu", "mm_out_out"),
    ],
)
def test_the_first_argument_tells_where_the_others_belong(code: str, words: str, method: str) -> None:
    assert _said(code) == f"{_SAME}got {words} (when checking argument in method wrapper_CUDA_{method})"


def test_element_wise_operators_name_both_devices() -> None:
    found = "found at least two devices, cuda:0 and cpu!"
    assert _said("torch.ones(4, 4, device=d) + torch.ones(4, 4)") == f"{_SAME}{found}"


def test_a_stream_that_a_capture_forked_must_be_joined() -> None:
    assert _said("captured(joins=False") == "AcceleratorError: CUDA error: capturing stream has unjoined work"
    assert _said("captured(joins=True") == "fine"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("torch.histc(", "_histc_cuda with floating point input"),
        ("torch.bincount(torch.zeros(4, dtype=torch.long, device=d), ", "_bincount_cuda"),
        ("functional.adaptive_avg_pool2d(", "adaptive_avg_pool2d_backward_cuda"),
        ("functional.grid_sample(", "grid_sampler_2d_backward_cuda"),
        ("torch.rand(1, 2, 4, 4, device=d, requires_grad=True).median", "median CUDA with indices output"),
    ],
)
def test_operators_that_vary_are_refused_if_the_program_asks_for_deterministic_ones(code: str, words: str) -> None:
    assert _said(code).startswith(f"RuntimeError: {words} {_VARIES}")


def test_operators_that_do_not_vary_run_then_and_others_may_warn() -> None:
    assert _said("torch.bincount(torch.zeros(4, dtype=torch.long, device=d))") == "fine"
    assert _said("functional.max_pool2d(torch.rand") == "fine"
    assert facts("refusals")["warned"] == [
        "_histc_cuda with floating point input does not have a deterministic implementation"
    ]


def test_attention_of_nested_tensors_raises_and_does_not_end_the_process() -> None:
    assert _said("functional.scaled_dot_product_attention(nested").startswith(
        "RuntimeError: the virtual GPU cannot run aten::transpose.int on nested tensors"
    )


def test_what_is_advised_in_place_of_attention_of_nested_tensors_runs() -> None:
    assert _said("[functional.scaled_dot_product_attention(each, each, each)") == "fine"
    assert _said("nested.transpose(1, 2).to_padded_tensor") == "fine"
