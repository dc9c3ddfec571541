"""Which kernels attention takes on each GPU: as torch chooses them, by compute capability (sdp_utils.cpp)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from processes import succeeded

_PROGRAM = Path(__file__).parent / "programs" / "attention_choice.py"
_TURING = {  # flash and cuDNN need Ampere; of 16 bits, the efficient kernels take float16 alone, in multiples of 8
    **{f"float16 64{mask}": "EFFICIENT" for mask in ("", " masked")},
    **{f"float16 20{mask}": "MATH" for mask in ("", " masked")},
    **{f"bfloat16 {width}{mask}": "MATH" for width in (64, 20) for mask in ("", " masked")},
    **{f"float32 {width}{mask}": "EFFICIENT" for width in (64, 20) for mask in ("", " masked")},
}
_AMPERE = {
    **{f"{dtype} {width}": "FLASH" for dtype in ("float16", "bfloat16") for width in (64, 20)},
    **{f"{dtype} 64 masked": "EFFICIENT" for dtype in ("float16", "bfloat16")},
    **{f"{dtype} 20 masked": "MATH" for dtype in ("float16", "bfloat16")},
    **{f"float32 {width}{mask}": "EFFICIENT" for width in (64, 20) for mask in ("", " masked")},
}
_HOPPER = _AMPERE | {f"{dtype} 64{mask}": "CUDNN" for dtype in ("float16", "bfloat16") for mask in ("", " masked")}


@pytest.mark.parametrize(
    ("gpu", "chosen"),
    [
        ("t4", _TURING),
        pytest.param("a100-80g", _AMPERE, marks=pytest.mark.ci),
        pytest.param("rtx4090", _AMPERE, marks=pytest.mark.ci),
        ("h200", _HOPPER),
    ],
)
def test_attention_takes_the_kernels_that_torch_chooses_on_a_gpu(gpu: str, chosen: dict[str, str]) -> None:
    done = succeeded([sys.executable, "-m", "unstall.virtual", "--gpu", gpu, str(_PROGRAM)], timeout=600)

    assert json.loads(done.stdout.splitlines()[-1]) == chosen
