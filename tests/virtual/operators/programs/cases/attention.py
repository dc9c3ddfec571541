"""scaled_dot_product_attention as models call it, and as its limits are."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cases import DTYPES, backward, normal

PLAIN = (2, 4, 128, 64)


@dataclass(frozen=True)
class Call:
    query: tuple = PLAIN
    key: tuple = PLAIN
    options: dict = field(default_factory=dict)
    layout: str = "bhsd"
    backend: str | None = None
    mask: str | None = None


LONG, SHORT = (2, 4, 100, 64), (2, 4, 77, 64)


def of_head(size: int) -> Call:
    return Call((2, 4, 64, size), (2, 4, 64, size))


CALLS = {
    "plain": Call(),
    "causal": Call(options={"is_causal": True}),
    "bshd": Call(layout="bshd"),
    "packed": Call(options={"is_causal": True}, layout="packed"),
    "boolmask": Call(mask="bool"),
    "floatmask": Call(layout="bshd", mask="float"),
    "floatgradmask": Call(layout="bshd", mask="floatgrad"),
    "dropout.1": Call(options={"dropout_p": 0.1}),
    "dropout.25": Call(options={"dropout_p": 0.25}),
    "dropmask": Call(options={"dropout_p": 0.1}, mask="bool"),
    "odd": Call(LONG, LONG),
    "oddmask": Call(LONG, SHORT, mask="float"),
    "cross": Call(LONG, SHORT, layout="bshd"),
    "causalns": Call(LONG, SHORT, {"is_causal": True}),
    **{f"d{size}": of_head(size) for size in (40, 36, 30, 256, 192, 512, 5)},
    "gqa": Call((2, 8, 64, 64), (2, 2, 64, 64), {"enable_gqa": True}),
    "decode": Call((2, 4, 1, 64), SHORT, layout="bshd"),
    "decode1": Call((2, 4, 1, 64), (2, 4, 1, 64), layout="bshd"),
    "decodemask": Call((2, 4, 1, 64), SHORT, layout="bshd", mask="bool"),
    "dim3": Call((4, 64, 32), (4, 64, 32)),
    "flash": Call(backend="FLASH_ATTENTION"),
    "eff": Call(backend="EFFICIENT_ATTENTION"),
    "effmask": Call(backend="EFFICIENT_ATTENTION", mask="bool"),
    "effdrop": Call(options={"dropout_p": 0.1}, backend="EFFICIENT_ATTENTION", mask="bool"),
    "flashdrop": Call(options={"dropout_p": 0.1}, layout="bshd", backend="FLASH_ATTENTION"),
    "effodd": Call(LONG, SHORT, layout="bshd", backend="EFFICIENT_ATTENTION"),
    "flashodd": Call((2, 4, 100, 40), (2, 4, 77, 40), layout="bshd", backend="FLASH_ATTENTION"),
    "flashd36": Call((2, 4, 100, 36), (2, 4, 77, 36), layout="bshd", backend="FLASH_ATTENTION"),
    "math": Call(backend="MATH"),
    "mathmask": Call(options={"dropout_p": 0.1}, backend="MATH", mask="bool"),
    "mathcausal": Call(options={"is_causal": True}, backend="MATH"),
    "cudnn": Call(layout="bshd", backend="CUDNN_ATTENTION"),
    "cudnnmask": Call(layout="bshd", backend="CUDNN_ATTENTION", mask="bool"),
    "cudnncausal": Call(options={"is_causal": True, "dropout_p": 0.25}, backend="CUDNN_ATTENTION"),
}


def inputs(call: Call, dtype: torch.dtype, grad: bool) -> list[torch.Tensor]:
    if call.layout == "packed":
        batch, heads, rows, size = call.query
        together = normal(batch, rows, 3 * heads * size, dtype=dtype, grad=grad)
        return [part.view(batch, rows, heads, size).transpose(1, 2) for part in together.split(heads * size, dim=2)]
    shapes = [call.query, call.key, call.key]
    if call.layout == "bhsd":
        return [normal(*shape, dtype=dtype, grad=grad) for shape in shapes]
    rows_first = [normal(b, n, h, d, dtype=dtype, grad=grad) for b, h, n, d in shapes]
    return [one.transpose(1, 2) for one in rows_first]


def mask_of(call: Call, dtype: torch.dtype) -> torch.Tensor | None:
    rows, columns = call.query[-2], call.key[-2]
    if call.mask == "bool":
        return torch.ones(rows, columns, device="cuda", dtype=torch.bool).tril()
    if call.mask == "float":
        return torch.zeros(call.query[0], 1, rows, columns, device="cuda", dtype=dtype)
    if call.mask == "floatgrad":
        return torch.zeros(*call.query[:2], rows, columns, device="cuda", dtype=dtype).requires_grad_()
    return None


def attend(call: Call, dtype: torch.dtype, grad: bool) -> Callable[[], None]:
    def run() -> None:
        query, key, value = inputs(call, dtype, grad)
        mask = mask_of(call, dtype)
        kernels = sdpa_kernel([getattr(SDPBackend, call.backend)]) if call.backend else contextlib.nullcontext()
        with kernels:
            out = scaled_dot_product_attention(query, key, value, attn_mask=mask, **call.options)
        if grad:
            backward(out)

    return run


def cases() -> dict[str, Callable[[], None]]:
    return {
        f"sdpa/{dtype_name}/{'train' if grad else 'infer'}/{name}": attend(call, dtype, grad)
        for dtype_name, dtype in DTYPES.items()
        for grad in (False, True)
        for name, call in CALLS.items()
    }
