"""A dispatch mode of unstall's does not import `torch._dynamo`, and is not compiled if the program has imported it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
import torch
from unstall.guest.dispatch_mode import DispatchMode

class Base(DispatchMode):
    count = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Base.count += 1
        return func(*args, **(kwargs or {}))

class Mode(Base):
    pass

with Mode() as mode:
    torch.ones(3) + 1
assert type(mode) is Mode
assert Base.count == 2, Base.count
assert "torch._dynamo" not in sys.modules
assert not hasattr(Base.__torch_dispatch__, "__wrapped__")
import torch._dynamo
for _ in range(2):
    with Mode():
        torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(3))
wrapped = Base.__torch_dispatch__
assert not hasattr(wrapped.__wrapped__, "__wrapped__")
assert Base.count == 2 + 2 * 3, Base.count
"""


@pytest.mark.slow
def test_a_mode_imports_dynamo_only_if_the_program_does() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
