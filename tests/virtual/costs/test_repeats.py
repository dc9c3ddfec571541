"""Calls that are repeated: what was measured of them, and how it is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unstall.replay.program import WHOLE
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.model import Kernel
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

pytest.importorskip("torch")

_MEASURES = """
import unstall
with unstall.virtual_gpu("h200"):
    import torch
    from unstall.virtual.costs.repeats import Repeater
    given = []
    for _ in range(2):
        x = torch.randn({size}, {size}, device="cuda")
        given.append(((x, {more}), dict(out=torch.empty_like(x))))
    found = Repeater().measure(torch.ops.aten.{name}.out, tuple(given), 1, 3_000)
    print(found.ns, found.beside)
"""


def _kernel(gpu: str, name: str, size: int, *more: object, result: int = 2) -> Kernel:
    x = TensorSpec("float32", (size, size), (size, 1))
    sizes = (size,) * result
    out = TensorSpec("float32", sizes, contiguous_strides(sizes))
    (kernel,) = costs_of(gpu).cost(Signature(f"aten::{name}", "", (x, *more), (out,))).kernels
    return kernel


@pytest.mark.parametrize(("size", "loop", "beside"), [(256, 1_140, 1.08), (724, 1_640, 1.31)])
def test_a_loop_of_exp_takes_what_it_took_on_an_h200(size: int, loop: int, beside: float) -> None:
    kernel = _kernel("h200", "exp", size)

    assert kernel.duration_ns * kernel.again / WHOLE == pytest.approx(loop, rel=0.15)
    # Loops of rsqrt of 510,926 elements took 1.08 times as long beside each other, of 521,134 1.44 times.
    assert 1 + kernel.share / WHOLE == pytest.approx(beside, abs=0.25)


def test_a_gpu_like_a_measured_one_repeats_calls_as_that_does() -> None:
    own, like = _kernel("h200", "exp", 724), _kernel("t4", "exp", 724)

    assert like.again == pytest.approx(own.again, rel=0.2)
    assert like.share >= own.share  # it has fewer multiprocessors


@pytest.mark.ci
@pytest.mark.parametrize(("name", "size", "more"), [("exp", 724, ()), ("_softmax", 512, (-1, False))])
def test_measuring_on_a_virtual_gpu_finds_what_its_file_says(
    name: str, size: int, more: tuple[object, ...], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_MEASURES.format(name=name, size=size, more="".join(f"{each}, " for each in more)))
    done = subprocess.run([sys.executable, "-W", "ignore", program], capture_output=True, text=True, check=True)
    ns, beside = map(float, done.stdout.split())
    kernel = _kernel("h200", name, size, *more)

    assert ns == pytest.approx(kernel.duration_ns * kernel.again / WHOLE + costs_of("h200").limits.graph_gap, rel=0.06)
    assert beside == pytest.approx(1 + kernel.share / WHOLE, abs=0.08)
