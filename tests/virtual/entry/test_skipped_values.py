"""What a report says of a program that reads values which `--numerics skip` did not compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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


_OVERRIDDEN = """\
import unstall
with unstall.virtual_gpu("h200", numerics="skip"):
    import torch
    torch.set_default_device("cuda")
    product = torch.ones(4096, 4096) @ torch.ones(4096, 4096)
    for _ in range(2):
        bool(product.max() > 3)
"""


@pytest.mark.ci
@pytest.mark.parametrize("folder", [".", "one in another"])
def test_the_warning_is_at_the_programs_line_once(folder: str, tmp_path: Path) -> None:
    """Though the call goes through torch's own file, as after torch.set_default_device."""
    program = tmp_path / folder / "train.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text(_OVERRIDDEN)
    done = subprocess.run(
        [sys.executable, str(program.relative_to(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    (told,) = (line for line in done.stderr.splitlines() if "UserWarning" in line)
    told_at, _, text = told.partition(": UserWarning: ")
    assert told_at == f"{program.relative_to(tmp_path)}:7"
    assert text.startswith("the virtual GPU skips numerics, and a value that was not computed")


_SEARCHES = """\
import json
import unstall
with unstall.virtual_gpu("h200", numerics="skip") as gpu:
    import torch
    x, few = torch.randn(1024, 1024, device="cuda"), torch.arange(10, device="cuda")
    mask = x > 0
    found = [mask.nonzero(), torch.argwhere(mask), *torch.where(mask), x[mask], torch.masked_select(x, mask)]
    x[mask] = x[mask] * 2
    known = (few > 3).nonzero(), few[few > 3]
    print(json.dumps([[list(each.shape) for each in found], [each.flatten().tolist() for each in known]]))
    rest, searches = x.flatten(), 0
    while rest.numel():
        rest, searches = rest[rest > 0], searches + 1
    print(json.dumps(searches))
    x[0].tolist()
timeline = gpu.timeline()
kernels = [timeline.text(name) for name in timeline.device.name]
print(json.dumps([timeline.meta.notes, sum("index" in name for name in kernels)]))
"""


def test_of_values_that_were_not_computed_half_are_found_and_the_report_says_where(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SEARCHES)
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=True, cwd=tmp_path)
    (found, known), searches, (notes, gathers) = map(json.loads, done.stdout.splitlines())
    half = 1024 * 1024 // 2
    assert found == [[half, 2], [half, 2], [half], [half], [half], [half]]
    assert known == [[*range(4, 10)], [*range(4, 10)]]
    assert searches == 21  # half of the rest each time, until nothing is left
    assert gathers >= 3
    (note,) = (note for note in notes if note.startswith("half of the elements are assumed to be found"))
    assert "at train.py:7, train.py:8 and train.py:13." in note
    warnings = [line for line in done.stderr.splitlines() if "UserWarning" in line]
    assert [line.split(": UserWarning: ")[0].rsplit("/")[-1] for line in warnings] == [
        *("train.py:7", "train.py:8", "train.py:13", "train.py:15")
    ]
    assert "Triggered internally" not in done.stderr


_SEARCHES_ON = """\
import unstall
with unstall.virtual_gpu("h200", numerics="skip"):
    import torch
    left = torch.randn(1024, 1024, device="cuda") > 0
    while left.nonzero().numel():
        left[0] = False
"""


@pytest.mark.slow
def test_a_program_that_searches_until_nothing_is_left_ends(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SEARCHES_ON)
    subprocess.run([sys.executable, "-W", "ignore", "train.py"], check=True, cwd=tmp_path, timeout=300)


_CHECKS = """\
import json
import unstall
with unstall.virtual_gpu("h200", numerics="skip"):
    import torch
    from torch.distributions import Normal
    x = torch.randn(2048, 2048, device="cuda")
    seen = [bool(torch.isfinite(x).all()), bool((x == x).all(0).all()), bool(torch.isnan(x).any())]
    seen += [Normal(x, x.exp()).log_prob(x).shape[0], bool((torch.arange(3, device="cuda") > 0).all())]
print(json.dumps(seen))
"""


@pytest.mark.ci
def test_a_check_of_all_values_holds_so_that_programs_which_check_their_arguments_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_CHECKS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "train.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [True, True, False, 2048, False]


def _told(program: str, folder: Path) -> Any:
    """The JSON in the last line that `program` prints."""
    (folder / "train.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "train.py"], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


_COMPARISONS = """\
import json
import unstall
with unstall.virtual_gpu("h200", numerics="skip"):
    import torch
    x = torch.randn(2048, 2048, device="cuda")
    loss, losses = (x @ x).mean(), (x @ x).mean(0)[:8]
    finite, flag = torch.isfinite(loss), torch.ones((), dtype=torch.bool, device="cuda")
    flag &= loss > 1
    answers = [finite, loss == loss, loss < 1e9, loss.isnan(), loss > 0, (x > 0).any(), ~(x > 0).any(), flag]
    seen = [bool(each) for each in answers] + [finite.cpu().item(), finite.clone().item(), finite.float().item()]
    seen += [(losses < 1e9).tolist(), bool((losses < 0).any()), bool((losses > 0).all()), len(losses[losses < 0])]
    print(json.dumps(seen))
"""


@pytest.mark.ci
def test_comparisons_of_values_that_were_not_computed_follow_from_the_zeros_that_are_read(tmp_path: Path) -> None:
    seen = _told(_COMPARISONS, tmp_path)
    assert seen[:8] == [True, True, True, False, False, False, True, False]
    assert seen[8:11] == [True, True, 1.0]  # copies
    assert seen[11:] == [[True] * 8, False, True, 4]  # checks hold, and searches find half


_MASKS = """\
import json
import unstall
with unstall.virtual_gpu("h200", numerics="skip"):
    import torch
    n = 256
    scores, diagonal = torch.rand(n, n, device="cuda"), torch.eye(n, dtype=torch.bool).cuda()
    labels = (torch.arange(n)[:, None] % 128 == torch.arange(n)[None] % 128).float().cuda()
    labels, scores = labels[~diagonal].view(n, -1), scores[~diagonal].view(n, -1)
    positives = scores[labels.bool()].view(n, -1)
    print(json.dumps([positives.shape, scores[~labels.bool()].view(n, -1).shape]))
"""


def test_masks_of_small_tensors_are_known_through_all_operators(tmp_path: Path) -> None:
    assert _told(_MASKS, tmp_path) == [[256, 1], [256, 254]]


_DIVIDES = """\
import json
import unstall
with unstall.virtual_gpu("h200", numerics="skip") as gpu:
    import torch
    count = torch.ones(4096, 4096, device="cuda").sum().long()
    told = [(8 // count).item(), (torch.tensor(8, device="cuda") // 0).item()]
told += [note for note in gpu.timeline().meta.notes if "divided by zero" in note]
print(json.dumps(told))
"""


def test_an_unknown_divisor_gives_an_unknown_quotient_and_not_that_of_a_division_by_zero(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_DIVIDES)
    command = [sys.executable, "-W", "ignore", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    unknown, known, note = json.loads(done.stdout)
    assert (unknown, known) == (0, 2**32 - 1)
    assert note.startswith("integers are divided by zero, at train.py:6: ")
