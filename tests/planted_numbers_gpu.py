"""Functions for a GPU whose numbers differ for a known reason: races, kernels whose order varies, coarser products.

Each case has a verdict that is right. A race is planted in two lines: "# planted: earlier" and "# planted: later".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

LONG = 50_000_000
"""Cycles, about 30 ms, for which a stream is busy before it works."""


def read_early(x: Tensor) -> Tensor:
    """A missing wait_stream: the sum reads before the other stream has written."""
    y, side = torch.zeros_like(x), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        y.copy_(x)  # planted: earlier
    result = y * 2  # planted: later
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(side)
    return result


def read_in_time(x: Tensor) -> Tensor:
    """As `read_early`, with the wait."""
    y, side = torch.zeros_like(x), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        y.copy_(x)
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(side)
    return y * 2


def overwritten_early(x: Tensor) -> Tensor:
    """The main stream overwrites a buffer that another stream still reads."""
    buffer, side = x * 1, torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        result = buffer * 2  # planted: earlier
    buffer.mul_(3)  # planted: later
    torch.cuda.current_stream().wait_stream(side)
    buffer.record_stream(side)
    result.record_stream(torch.cuda.current_stream())
    return result


def index_added(values: Tensor, where: Tensor) -> Tensor:
    return values.new_zeros(8).index_add(0, where, values)  # planted


def scatter_added(values: Tensor, where: Tensor) -> Tensor:
    return values.new_zeros(8).scatter_add(0, where, values)  # planted


def product(one: Tensor, other: Tensor) -> Tensor:
    return one @ other  # planted


def convolved(image: Tensor, weight: Tensor) -> Tensor:
    return nn.functional.conv2d(image, weight)  # planted


@dataclass(frozen=True, slots=True)
class Case:
    """A function, its arguments, a way, and the class that `compare_numbers` must find in it.

    Attributes:
        settings: Sets what the case needs in torch. It is undone after the case.
        says: Words that the sentence must have.
    """

    name: str
    fn: Callable[..., Any]
    inputs: Callable[[], tuple[Tensor, ...]]
    way: str
    kind: str
    settings: Callable[[], None]
    says: tuple[str, ...] = ()


def _drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(len(shape))).to(dtype)


def _vector() -> tuple[Tensor, ...]:
    return (_drawn(1 << 20),)


def _many() -> tuple[Tensor, ...]:
    chance = torch.Generator("cuda").manual_seed(1)
    return _drawn(1 << 16), torch.randint(0, 8, (1 << 16,), device="cuda", generator=chance)


def _matrices() -> tuple[Tensor, ...]:
    return _drawn(1024, 1024), _drawn(1024, 1024)


def _images() -> tuple[Tensor, ...]:
    return _drawn(8, 64, 64, 64), _drawn(64, 64, 3, 3)


def _long_halves() -> tuple[Tensor, ...]:
    """Sums whose first half is too large for float16, and whose second half makes them small again."""
    one, other = _drawn(64, 1 << 15).abs() * 8, _drawn(1 << 15, 64).abs()
    one[:, 1 << 14 :] *= -1
    return one.half(), other.half()


def _few_rows() -> tuple[Tensor, ...]:
    return _drawn(2, 4096), _drawn(4096, 4096)


def _some_rows() -> tuple[Tensor, ...]:
    return _drawn(16, 4096), _drawn(4096, 4096)


def _exact() -> None:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def _tf32_products() -> None:
    _exact()
    torch.set_float32_matmul_precision("high")


def _tf32_convolutions() -> None:
    _exact()
    torch.backends.cudnn.allow_tf32 = True


def _half_sums() -> None:
    """cuBLAS may then add up in float16; `allow_fp16_accumulation`, if there is one, makes it do so."""
    _exact()
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    if hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
        torch.backends.cuda.matmul.allow_fp16_accumulation = True


CASES = (
    Case("a read before the write", read_early, _vector, "repeat", "race", _exact, ("wait_stream",)),
    Case("a write before the read", overwritten_early, _vector, "repeat", "race", _exact, ("wait_stream",)),
    Case("a read after the write", read_in_time, _vector, "repeat", "equal", _exact),
    Case("index_add", index_added, _many, "repeat", "nondeterministic", _exact, ("index", "kernel", "times as long")),
    Case("scatter_add", scatter_added, _many, "repeat", "nondeterministic", _exact, ("scatter", "kernel")),
    Case("a product in TF32", product, _matrices, "float64", "TF32", _tf32_products, ("matmul", "times as long")),
    Case(
        "a convolution in TF32", convolved, _images, "float64", "TF32", _tf32_convolutions, ("cudnn", "times as long")
    ),
    Case("a product of two rows", product, _few_rows, "batch", "batch", _exact, ("mm at",)),
    Case("a product of 16 rows", product, _some_rows, "batch", "batch", _exact, ("mm at",)),
    Case("sums in float16", product, _long_halves, "float64", "reduced precision", _half_sums, ("allow_fp16",)),
)


@contextmanager
def set_for(case: Case) -> Iterator[None]:
    """Sets what a case needs, and restores torch's settings afterwards."""
    matmul: Any = torch.backends.cuda.matmul
    names = ("allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation")
    flags = {name: getattr(matmul, name) for name in names if hasattr(matmul, name)}
    precision, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        case.settings()
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = convolutions
        for name, value in flags.items():
            setattr(matmul, name, value)
