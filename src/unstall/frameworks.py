"""Whose code is a file: the user's, ours, or that of torch, its family and what is installed with Python.

Recorders ask this in the program's own process, so it imports next to nothing.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

OURS = str(Path(__file__).parent) + os.sep  # all of this package, in a checkout too
_HELPERS = OURS + "fix" + os.sep  # which programs call
FRAMEWORKS = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "torchtext", "torchdata", "torchgen", "torchao", "functorch"),
        *("triton", "numpy", "unstall"),
    }
)
# In the standard library by name, but in a trace far more often somebody's own folder.
_OWN = frozenset({"test", "tests", "this", "code", "idlelib", "turtledemo"})
_FORMER_STDLIB = frozenset({"asynchat", "asyncore", "distutils", "imp", "lib2to3", "smtpd"})
# What is typed into IPython has a name in angle brackets too, but is the user's.
_GENERATED = re.compile(r"(^|/)torchinductor_|(^|/)\.?triton/cache/|^<(?!ipython-input-)")
_INSTALLED = re.compile(r"^.{0,4096}(?:site-packages|dist-packages|lib/python\d+\.\d+)/")


def is_left_out_of_stacks(path: str) -> bool:
    """Whether code of this file is ours, and its frames no part of the program's stacks. Those of helpers are."""
    return path.startswith(OURS) and not path.startswith(_HELPERS)


def top_module(path: str) -> str:
    """The top-level module that a recorded path belongs to: "torch" for "torch/nn/modules/module.py"."""
    path = _INSTALLED.sub("", path.replace("\\", "/"), count=1)
    return path.lstrip("/").split("/", 1)[0].removesuffix(".py")


def is_framework(path: str) -> bool:
    """Whether code of this file is torch's, its family's, numpy's, the standard library's or generated.

    Traces strip the prefixes under which modules are found, so the top-level module's name decides; a path
    that is still absolute, and not below a library folder, is the user's.
    """
    if not path or _GENERATED.search(path):
        return True
    path = path.replace("\\", "/")
    if (path.startswith("/") or path[1:3] == ":/") and not _INSTALLED.match(path):
        return False
    top = top_module(path)
    return top in FRAMEWORKS or (top in sys.stdlib_module_names | _FORMER_STDLIB and top not in _OWN)
