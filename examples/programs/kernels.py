"""Kernels that are not torch's own: made by torch.compile, and written in Triton. Nothing stalls."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.nn.functional import gelu, layer_norm

from programs import Run, program


@triton.jit
def scale_kernel(x, y, n, factor, BLOCK: tl.constexpr):  # noqa: N803 - Triton's own spelling
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), factor, BLOCK=1024)
    return y


@program()
def triton_kernel() -> Run:
    """A hand-written Triton kernel over 256 MiB between two of torch's: its launch is `cuLaunchKernelEx`,
    from no operator."""
    x = torch.randn(1 << 26, device="cuda")

    def step() -> torch.Tensor:
        return scale(x + 1, 2.0).relu_()

    return Run(step, ("device",))


def gated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = x @ w
    return layer_norm(gelu(h) * torch.sigmoid(h) + x, x.shape[-1:])


@program()
def compiled() -> Run:
    """A function through torch.compile, forward and backward: kernels named triton_…, launched by compiled
    code."""
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    fast = torch.compile(gated)

    def step() -> None:
        fast(x, w).square().mean().backward()
        w.grad = None

    return Run(step, ("device",))
