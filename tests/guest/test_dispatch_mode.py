"""A dispatch mode of unstall's does not import `torch._dynamo`, and is not compiled if the program imports it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_MODE = """
import sys, warnings
from functools import lru_cache
import torch
from unstall.guest.dispatch_mode import DispatchMode

warnings.simplefilter("error")

@lru_cache
def name_of(operator):
    return operator.name()

class Base(DispatchMode):
    seen = []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Base.seen.append(name_of(func))  # torch.compile warns of a call of a cached function
        return func(*args, **(kwargs or {}))

class Mode(Base):
    pass

def compiled():
    return torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(3))

def frames_traced():
    return torch._dynamo.utils.counters["frames"]["total"]

with Mode() as mode:
    torch.ones(3) + 1
assert type(mode) is Mode
assert len(Base.seen) == 2, Base.seen
assert "torch._dynamo" not in sys.modules
"""

_PROGRAMS = {
    "imported in the mode": """
with Mode():
    compiled()
    compiled()
assert len(Base.seen) == 2 + 2 * 3, Base.seen
assert frames_traced() == 0
""",
    "imported before the mode": """
import torch._dynamo
for _ in range(2):
    with Mode():
        compiled()
assert len(Base.seen) == 2 + 2 * 3, Base.seen
assert frames_traced() == 0
torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))
assert frames_traced() == 1
""",
    "a mode of compare_numbers": """
from unstall.rounding.operators import Operators
from unstall.rounding.samples import Kept

kept = Kept()
with Operators(kept.of_operator):
    compiled()
assert [each.name for each in kept.seen()] == ["ones", "sin", "add"]
assert frames_traced() == 0
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", _PROGRAMS)
def test_a_mode_does_not_import_dynamo_and_dynamo_does_not_compile_a_mode(case: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_MODE + _PROGRAMS[case])
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
