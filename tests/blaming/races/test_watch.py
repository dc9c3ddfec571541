"""What is left of a look for races once it has ended."""

from __future__ import annotations

import pytest
from processes import forked

pytest.importorskip("torch")

_BEFORE = """
import sys
from pathlib import Path
import torch
torch._C._cuda_getCurrentRawStream = lambda device: 0  # a torch that was built with CUDA has this
from unstall.blaming.races.saved import keep_races, read_races

def callbacks():
    from torch.cuda import _gpu_trace
    return sum(len(each.callback_list) for each in vars(_gpu_trace).values() if hasattr(each, "callback_list"))

def look():
    keep_races(Path(sys.argv[1]))()
    assert not read_races(Path(sys.argv[1])).missing
"""
_PROGRAMS = {
    "enabled afterwards": """
look()
from torch.cuda import _sanitizer
_sanitizer.enable_cuda_sanitizer()
print(callbacks())
""",
    "imported before": "import torch.cuda._sanitizer\nlook()\nprint(callbacks())",
    "of races alone": "look()\nprint(callbacks())",
    "kept": """
look()
import gc
from unstall.blaming.races.watch import RaceWatch
gc.collect()
print(sum(type(each) is RaceWatch for each in gc.get_objects()))
""",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each program printed."""
    done = forked(_BEFORE, list(_PROGRAMS.values()), tmp_path_factory.mktemp("watch"))
    assert [(each.returncode, each.stderr) for each in done] == [(0, "")] * len(done)
    return {name: each.stdout for name, each in zip(_PROGRAMS, done, strict=True)}


def test_torchs_sanitizer_can_be_enabled_afterwards(told: dict[str, str]) -> None:
    assert told["enabled afterwards"] == "10\n"


def test_torchs_sanitizer_is_told_as_before_if_the_program_had_imported_it(told: dict[str, str]) -> None:
    assert told["imported before"] == "10\n"


def test_torchs_sanitizer_that_only_races_need_is_told_nothing(told: dict[str, str]) -> None:
    assert told["of races alone"] == "0\n"


def test_nothing_keeps_what_was_noted(told: dict[str, str]) -> None:
    assert told["kept"] == "0\n"
