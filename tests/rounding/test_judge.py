"""Whether two tensors agree within rounding."""

from __future__ import annotations

import math

import numpy as np
import torch
from msgspec.structs import replace

from unstall.rounding.judge import Judge
from unstall.rounding.operators import NOWHERE
from unstall.rounding.samples import Ran, Seen


def test_equal_elements_whose_sums_were_rounded_otherwise_do_not_differ() -> None:
    values = np.linspace(1.0, 2.0, 64)
    size = math.sqrt(float(np.mean(values**2)) * (1 << 24))
    one = Seen("after", "input 1", NOWHERE, (1 << 24,), torch.float32, values, total=0.0)
    rounded = replace(one, total=20 * 2.0**-53 * size)
    wrong = replace(one, total=1000 * 2.0**-24 * size)
    runs = [Ran({}, (), {("after", "input 1"): each}) for each in (one, rounded, wrong)]
    judge = Judge(runs[0], [runs[0]] * 3)
    assert judge.compare(runs[1]).equal
    assert judge.compare(runs[2]).first is not None
