"""The errors that noise adds are those of real roundings: not smaller, and not much larger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from fix.on_a_gpu import on_virtual_gpu
from torch import Tensor

from unstall.numbers.run import run
from unstall.numbers.ways import as_given
from unstall.rounding.judge import CONFIDENCE, RUNS, Judge, student
from unstall.rounding.noise import Noise

_MOST = 30  # times what is seen
_MADE = {"positive": torch.rand, "of both signs": torch.randn}


def exact(a: Tensor, b: Tensor) -> Tensor:
    """The product in long double."""
    wide = a.double().numpy().astype(np.longdouble) @ b.double().numpy().astype(np.longdouble)
    return torch.from_numpy(wide.astype(np.float64))


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@pytest.mark.parametrize("made", _MADE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [8, 32, 100, 180])
def test_the_limit_of_a_product_holds_and_is_not_far_off(n: int, dtype: torch.dtype, made: str) -> None:
    seeds = torch.Generator().manual_seed(n)
    shares = []
    for _ in range(3):
        a, b = (_MADE[made](n, n, generator=seeds).to(dtype) for _ in range(2))
        judge = Judge(run(as_given(product, [a, b])), [run(as_given(product, [a, b]), Noise(k)) for k in range(RUNS)])
        found = judge.compare(run(as_given(exact, [a, b])))
        assert found.first is None
        (result,) = (pair for pair in found.pairs if pair.seen.kind == "result")
        shares.append(result.share / found.limit)
    assert max(shares) > 1 / _MOST


@pytest.mark.parametrize("mean", [0, 1])
@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_noise_is_as_large_as_the_errors_of_terms_that_are_added_one_after_another(n: int, mean: int) -> None:
    terms = torch.randn(1000, n, generator=torch.Generator().manual_seed(n)) + mean
    exactly = terms.double().sum(1).numpy()
    one_by_one = np.cumsum(terms.numpy(), axis=1, dtype=np.float32)[:, -1] - exactly
    noisy = Noise(0).call(torch.ops.aten.mv.default, (terms, torch.ones(n)), {}).numpy() - exactly
    assert 0.65 < np.std(one_by_one) / np.std(noisy) < 1.3


@pytest.mark.parametrize(("freedom", "probability", "value"), [(8, 0.05, 2.306), (2, 0.001, 31.599), (4, 0.01, 4.604)])
def test_students_distribution_is_that_of_the_tables(freedom: int, probability: float, value: float) -> None:
    assert student(probability, freedom) == pytest.approx(value, abs=5e-4)


def test_the_confidence_is_for_all_tensors_together() -> None:
    assert student((1 - CONFIDENCE) / 500, RUNS) > student(1 - CONFIDENCE, RUNS)


@pytest.mark.slow
def test_a_copy_to_the_host_gets_its_errors_before_it_leaves_the_device(tmp_path: Path) -> None:
    """The copy may still run when it has returned: who reads its result then has a race."""
    program = """
import torch
from unstall.rounding.noise import Noise
from unstall.rounding.operators import Operators

x, touched = torch.rand(1000, device="cuda"), []

def note(func, args, place, result):
    touched.extend(each for each in args if isinstance(each, torch.Tensor) and not each.is_cuda)

with Operators(note):
    copy = Noise(0).call(
        torch.ops.aten._to_copy.default,
        (x,),
        {"dtype": torch.float16, "device": torch.device("cpu"), "non_blocking": True},
    )
torch.cuda.synchronize()
error = (copy.double() - x.cpu().half().double()).abs()
print(copy.dtype, copy.is_pinned(), len(touched), 0 < error.mean().item() < 2**-9)
"""
    assert on_virtual_gpu(tmp_path, program).splitlines()[0] == "torch.float16 True 0 True"
