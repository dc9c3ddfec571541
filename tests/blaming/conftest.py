"""The driver that tests tell how far its device comes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

# Frames in <string> are nobody's, so work is of the lines that call these functions.
TORCH = """
__version__ = "2.fake"

class cuda:
    @staticmethod
    def _lazy_call(act):
        act()

exec('''
import ctypes, struct

driver = ctypes.CDLL("libcuda.so.1")

def launch(kernel, stream=7):
    parameters = bytearray(64)
    struct.pack_into("<Q", parameters, 40, stream)
    if driver.fake_call(307, bytes(parameters), kernel, 0):
        raise RuntimeError("CUDA error: device-side assert triggered")

def synchronize(stream=7):
    if driver.fake_call(126, struct.pack("<Q", stream), None, 0):
        raise RuntimeError("CUDA error: device-side assert triggered")
''')
"""


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver, which is CUPTI too."""
    folder = tmp_path_factory.mktemp("fake")
    source = Path(__file__).parent / "fake_driver.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, fake: Path) -> Path:
    """A folder with a torch of a few lines, and with a toolkit whose CUPTI is the driver of these tests."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("torch", "lib64"):
        (folder / name).mkdir()
    (folder / "torch" / "__init__.py").write_text(TORCH)
    (folder / "lib64" / "libcupti.so").symlink_to(fake / "libcuda.so.1")
    return folder
