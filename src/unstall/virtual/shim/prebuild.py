"""Compiles the shim for the installed torch and Python, and puts the compiled shim into the package. A wheel of the
package then needs no compiler.

python -m unstall.virtual.shim.prebuild
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
    """Copies the compiled shim into the package, atomically. Returns the path of the copy."""
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
