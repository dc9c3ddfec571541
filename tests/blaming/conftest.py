"""The driver that tests tell how far its device comes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from blaming.driver_functions import CALL

HERE = Path(__file__).parent
# Frames in <string> are nobody's, so work is of the lines that call these functions.
TORCH = """
__version__ = "2.fake"

class cuda:
    @staticmethod
    def _lazy_call(act):
        act()

exec('''CALL
def launch(kernel, stream=7):
    if call("cuLaunchKernel", stream, kernel):
        raise RuntimeError("CUDA error: device-side assert triggered")

def synchronize(stream=7):
    if call("cuStreamSynchronize", stream):
        raise RuntimeError("CUDA error: device-side assert triggered")
''')
""".replace("CALL", CALL)


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver, and with a runtime that calls it."""
    folder = tmp_path_factory.mktemp("fake")
    for library, source in (("libcuda.so.1", "fake_driver.c"), ("libruntime.so", "fake_runtime.c")):
        command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(folder / library), str(HERE / source), "-ldl"]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a torch of a few lines."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(TORCH)
    return folder
