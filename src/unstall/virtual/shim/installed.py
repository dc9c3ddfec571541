"""Finds the torch that this Python would import, and says which build of torch it is. Does not import torch."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from unstall.errors import UnstallError

OLDEST_TORCH = (2, 11)
CPU_WHEEL = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
# What the shim is compiled against and resolved by, in a wheel's list of files with their hashes.
_COMPILED_AGAINST = re.compile(r"torch/(include/.*|lib/lib(c10|torch|torch_cpu|torch_python)\.so),sha256=")


class VirtualGpuError(UnstallError):
    """The virtual GPU cannot run on this machine. The message says why, and what to do."""


@dataclass(frozen=True)
class Torch:
    """The torch that this Python would import.

    Attributes:
        root: The folder of the package `torch`.
        version: The version, such as "2.11.0+cpu".
    """

    root: Path
    version: str

    def build(self) -> str:
        """Returns a text that identifies this build of torch. Two installations have the same text
        only if their headers and libraries are the same.

        The text has the hashes of the headers and libraries, from pip's list of the package's
        files. If pip has no such list, as for a checkout of torch, the text is the path of torch's
        folder.
        """
        record = self.root.parent / f"torch-{self.version}.dist-info" / "RECORD"
        try:
            files = record.read_text().splitlines()
        except OSError:
            return str(self.root)
        return "\n".join(sorted(file for file in files if _COMPILED_AGAINST.match(file))) or str(self.root)


def installed_torch() -> Torch:
    """Returns the torch that this Python would import. Does not import it. Raises VirtualGpuError
    if there is no torch, or if the virtual GPU cannot run with this torch.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise VirtualGpuError(f"the virtual GPU needs PyTorch, which {sys.executable} does not have: {CPU_WHEEL}")
    root = Path(spec.submodule_search_locations[0])
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", (root / "version.py").read_text(), re.MULTILINE)
    version = found.group(1) if found else "of unknown version"
    if re.search(r"\+(cu|rocm|xpu)", version) or any((root / "lib").glob("libtorch_cuda*.so")):
        raise VirtualGpuError(
            f"torch {version} is built for a real GPU, whose place the virtual one cannot take; "
            f"in an environment of its own: {CPU_WHEEL}"
        )
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise VirtualGpuError(f"the virtual GPU needs torch {oldest} or newer, this is {version}: {CPU_WHEEL}")
    return Torch(root, version)
