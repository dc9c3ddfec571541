"""Patches of lines that are of a known kind, and why others have none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from unstall.patches.patch import Patch, patch_for
from unstall.patches.source import Source
from unstall.result import Finding, Where


def _patch(
    text: str, line: int, rule: str, *, name: str = "train.py", exact: bool = True, beside: str | None = None
) -> Patch | str:
    where = Where(file=name, line=line, line_is="exact" if exact else "def", function="main")
    finding, *others = (
        Finding(
            rule=each, title="", where=where, count=1, wait_ns=0, exposed_ns=0, fix="", safe_if="", confidence="high"
        )
        for each in (rule, beside)
        if each is not None
    )
    return patch_for(finding, Source(name, Path(), text, 0), others)


def _applied(text: str, line: int, rule: str, folder: Path) -> str:
    """The text after `git apply` of its patch."""
    made = _patch(text, line, rule)
    assert isinstance(made, Patch), made
    (folder / "train.py").write_bytes(text.encode())
    (folder / "a.patch").write_bytes(made.diff.encode())
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "apply", "a.patch"], cwd=folder, check=True)
    return (folder / "train.py").read_bytes().decode()


_COPIES = """\
from torch.utils.data import DataLoader
def main(dataset, device):
    data = DataLoader(dataset, batch_size=8)
    for step, (x, y) in enumerate(data):
        x, y = x.to(device), y.cuda()
"""


def test_batches_of_a_loader_are_pinned_and_copied_without_waiting(tmp_path: Path) -> None:
    assert _applied(_COPIES, 5, "pageable-copy", tmp_path) == _COPIES.replace(
        "batch_size=8)", "batch_size=8, pin_memory=True)"
    ).replace("x.to(device), y.cuda()", "x.to(device, non_blocking=True), y.cuda(non_blocking=True)")


def test_a_copy_of_pageable_memory_of_unknown_origin_has_no_patch_that_would_change_nothing() -> None:
    made = _patch("def main(x, device):\n    return x.to(device)\n", 2, "pageable-copy")
    assert isinstance(made, str)
    assert made.startswith("non_blocking=True alone changes nothing, because the memory is not pinned")


def test_a_copy_of_memory_that_may_be_pinned_is_not_waited_for() -> None:
    made = _patch("def main(x, device):\n    return x.to(device)\n", 2, "blocking-copy")
    assert isinstance(made, Patch)
    assert "+    return x.to(device, non_blocking=True)" in made.diff
    assert "only helps if the memory is pinned" in made.note


_KEPT = """\
import torch
device = "cuda"
table = torch.randn(512, 1024)
def main():
    for step in range(20):
        x = table.to(device)
"""


def test_a_tensor_that_is_made_once_is_pinned_where_it_is_made(tmp_path: Path) -> None:
    assert _applied(_KEPT, 6, "pageable-copy", tmp_path) == _KEPT.replace("1024)", "1024).pin_memory()").replace(
        "to(device)", "to(device, non_blocking=True)"
    )
    made = _patch(_KEPT, 6, "pageable-copy")
    assert isinstance(made, Patch)
    assert made.note == "do not write to table before its copy has ended"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        x =", "        table = f(table)\n        x ="),
        ("torch.randn(512, 1024)", "made(512, 1024)"),
        ("torch.randn(512, 1024)", "torch.randn(512, 1024, device=device)"),
        ("table = torch", "for _ in range(2): table = torch"),
        ("def main():", "def main(table):"),
    ],
)
def test_a_tensor_that_may_be_another_is_not_pinned(old: str, new: str) -> None:
    text = _KEPT.replace(old, new)
    assert "alone changes nothing" in str(_patch(text, 1 + text[: text.index("table.to")].count("\n"), "pageable-copy"))


_PASSED = """\
from torch.utils.data import DataLoader
def train(model, data, device):
    for x in data:
        model(x.to(device))
def main(model, device):
    first = DataLoader(a, batch_size=8)
    last = DataLoader(b, num_workers=2)
    train(model, first, device)
    train(model, device=device, data=last)
"""


def test_loaders_that_are_passed_to_the_function_of_the_loop_are_pinned(tmp_path: Path) -> None:
    new = _applied(_PASSED, 4, "pageable-copy", tmp_path)
    assert new == _PASSED.replace("batch_size=8)", "batch_size=8, pin_memory=True)").replace(
        "num_workers=2)", "num_workers=2, pin_memory=True)"
    ).replace("x.to(device)", "x.to(device, non_blocking=True)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("data=last", "data=make()"),
        ("    for x in data", "    data = data or []\n    for x in data"),
        ("train(model, first, device)", "train(*everything)"),
        ("def main", "train = other\ndef main"),
    ],
)
def test_loaders_that_are_not_known_of_each_call_stay_as_they_are(old: str, new: str) -> None:
    text = _PASSED.replace(old, new)
    line = 1 + text[: text.index("model(x.to")].count("\n")
    assert "alone changes nothing" in str(_patch(text, line, "pageable-copy"))


@pytest.mark.parametrize(
    ("line", "rule", "new"),
    [
        ('torch.zeros(3, 4).to("cuda")', "pageable-copy", 'torch.zeros(3, 4, device="cuda")'),
        ("torch.full((2,), 1.5,).to(device)", "pageable-copy", "torch.full((2,), 1.5, device=device,)"),
        ("torch.ones(n).cuda()", "pageable-copy", 'torch.ones(n, device="cuda")'),
        ("torch.tensor(-0.5).to(device)", "pageable-copy", "torch.full((), -0.5, device=device)"),
        ("torch.tensor(1, device=device)", "sync-tensor", "torch.full((), 1, device=device)"),
        ("torch.tensor(1, device=device)", "pageable-copy", "torch.full((), 1, device=device)"),
    ],
)
def test_what_is_the_same_on_each_device_is_made_there(line: str, rule: str, new: str, tmp_path: Path) -> None:
    text = f"import torch\nx = {line}  # made\n"
    assert _applied(text, 2, rule, tmp_path) == f"import torch\nx = {new}  # made\n"


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_a_call_that_only_waits_is_taken_out(tmp_path: Path, ending: str) -> None:
    newline = ending or "\n"
    rule, call = "allocator-churn", "torch.cuda.empty_cache()"
    text = newline.join(["import torch", "for x in range(2):", "    print(x)", f"    {call}  # why"]) + ending
    new = _applied(text, 4, rule, tmp_path)
    assert new == newline.join(["import torch", "for x in range(2):", "    print(x)", ""])


def test_a_block_is_not_left_empty(tmp_path: Path) -> None:
    text = "from torch import cuda\nif True:\n    cuda.empty_cache()\n"
    assert _applied(text, 3, "allocator-churn", tmp_path) == "from torch import cuda\nif True:\n    pass\n"


@pytest.mark.parametrize(
    ("lines", "line", "rule", "why"),
    [
        (["x = torch.randn(3).cuda()"], 2, "pageable-copy", "would draw other numbers"),
        (["model.cuda()"], 2, "pageable-copy", "may be one"),
        (["x.to(torch.float16)"], 2, "pageable-copy", "not of the form x.to(device)"),
        (["x.to(device, non_blocking=True)"], 2, "pageable-copy", "already"),
        (["x = out.to(cpu_device)"], 2, "pageable-copy", "not of the form x.to(device)"),
        (["x = torch.tensor(values, device=device)"], 2, "sync-tensor", "may be others each time"),
        (["x = torch.tensor([0.5, 2], device=device)"], 2, "pageable-copy", "make the tensor once, before the loop"),
        (["torch.cuda.empty_cache(); f()"], 2, "allocator-churn", "other statements"),
        (["x = torch.cuda.empty_cache()"], 2, "allocator-churn", "not a statement"),
        (["torch = f()", "torch.cuda.empty_cache()"], 3, "allocator-churn", "none is known"),
        (["x = torch.randn(3, device=d)"], 2, "allocator-churn", "none is known for findings of this kind"),
        (["x = (", ""], 2, "sync-tensor", "no Python"),
        (["f()"], 2, "data-loading", "none is known"),
    ],
)
def test_any_other_line_has_none_and_is_told_why(lines: list[str], line: int, rule: str, why: str) -> None:
    made = _patch("\n".join(["import torch", *lines, ""]), line, rule)
    assert isinstance(made, str)
    assert why in made


def test_a_line_that_also_copies_to_the_host_has_none() -> None:
    """A copy to the host that is not waited for is read before it has arrived."""
    text = "x, last = batch.to(device), out.to(args.out_device)\n"
    assert isinstance(_patch(text, 1, "blocking-copy"), Patch)
    made = _patch(text, 1, "pageable-copy", beside="sync-cpu")
    assert made == "the line also copies to the host, which non_blocking=True would make unsafe: split it in two"


def test_a_library_is_never_patched_nor_a_line_that_is_not_known() -> None:
    text = "import torch\ntorch.cuda.synchronize()\n"
    library = _patch(text, 2, "allocator-churn", name=".venv/lib/python3.11/site-packages/lib/train.py")
    assert (library, _patch(text, 2, "allocator-churn", exact=False)) == (
        "the line is a library's: change the line that calls it",
        "only the first line of its function is known: unstall run records exact lines",
    )
