"""Compiles the shim (the C++ part of the virtual GPU) for the installed torch and Python, and puts
it into the package, so that a wheel of the package needs no compiler where it is installed.

Run it as `python -m unstall.virtual.shim.prebuild`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from unstall.virtual.shim.build import compiled, names_of
from unstall.virtual.shim.installed import Torch, installed_torch
from unstall.virtual.shim.sealed import seal


def prebuild(torch: Torch) -> Path:
    """Puts the shim that is compiled for `torch` and this Python into the package, and returns its
    path there. Compiles it first if the cache does not have it. No process ever sees an incomplete
    file at that path.
    """
    target = names_of(torch).prebuilt
    target.parent.mkdir(exist_ok=True)
    partial = target.with_name(f".{os.getpid()}-{target.name}")
    shutil.copyfile(compiled(torch), partial)
    subprocess.run(["strip", "--strip-unneeded", str(partial)], check=True)
    seal(partial)  # stripping it removed the seal
    partial.chmod(0o755)
    partial.replace(target)
    return target


if __name__ == "__main__":
    installed = installed_torch()
    made = prebuild(installed)
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB, for torch {installed.version}")
