"""What a report says of a program that reads values which `--numerics skip` did not compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

_PROGRAM = """\
import json
import unstall
with unstall.virtual_gpu("h200", numerics="skip") as gpu:
    import torch
    small, large = torch.ones(8, device="cuda"), torch.ones(4096, 4096, device="cuda")
    product = large @ large
    if small.sum() > 7:
        {branch}
print(json.dumps(gpu.timeline().meta.notes))
"""


@pytest.mark.parametrize("reads", [True, False])
def test_the_report_names_the_lines_that_read_values_which_were_not_computed(reads: bool, tmp_path: Path) -> None:
    branch = "bool(product.max() > 3), product[0, 0].item()" if reads else "product.max()"
    (tmp_path / "train.py").write_text(_PROGRAM.format(branch=branch))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "train.py"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    (note,) = (note for note in json.loads(done.stdout) if note.startswith("large tensors have no values"))
    expected = "large tensors have no values"
    if reads:
        expected += (
            ", and the program reads some as 0: at train.py:8. A branch there may go another way than on a GPU; "
            "--numerics real computes all values"
        )
    assert note == expected
