"""`unstall run --blame` from the command line to the report: on a driver that the program tells what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from blaming.core_dump.dumps import FOLDER, content

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="CUPTI is followed on Linux alone"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver of these tests is built by gcc"),
]

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
ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:16: gather_kernel: block: [55,0,0], thread: [16,0,0] "
    "Assertion `ind < ind_dim_size` failed."
)
FAULT = f"""import os, torch
torch.launch(b"add")
torch.launch(b"gather_kernel")  # the fault
torch.launch(b"mul")
torch.driver.fake_run(7, 1)
torch.driver.fake_die(710)
print("so far so good", flush=True)
os.write(2, b{ASSERTION + chr(10)!r})
torch.synchronize()  # notices it
"""
TWO_STREAMS = """import torch
torch.driver.fake_die(0)
torch.launch(b"add", 7)
torch.launch(b"mul", 8)
torch.driver.fake_die(700)
torch.synchronize()
"""
WRITES_A_DUMP = f"""
if "CUDA_COREDUMP_FILE" in os.environ:
    with open(os.environ["CUDA_COREDUMP_FILE"].replace("%p", str(os.getpid())), "wb") as dump:
        import lzma
        dump.write(lzma.decompress(open({str(FOLDER / "NAME.core.xz")!r}, "rb").read()))
"""
WITH_A_DUMP = f"""import os, torch
torch.driver.fake_die(0)
torch.launch(b"add", 7)
torch.launch(b"scale", 8)  # the fault
torch.driver.fake_die(700)
{WRITES_A_DUMP.replace("NAME", "illegal")}
torch.synchronize()
"""
WAITS_IN_VAIN = f"""import os, torch
torch.launch(b"add")
torch.launch(b"_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb")  # the fault
torch.launch(b"mul")
torch.driver.fake_run(7, 1)
{WRITES_A_DUMP.replace("NAME", "assert")}
torch.synchronize()  # returns no error if a dump is written
torch.driver.fake_die(719)
torch.launch(b"sum")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, fake: Path) -> Path:
    """A folder with a torch of a few lines, and with a toolkit whose CUPTI is the driver of these tests."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("torch", "lib64"):
        (folder / name).mkdir()
    (folder / "torch" / "__init__.py").write_text(TORCH)
    (folder / "lib64" / "libcupti.so").symlink_to(fake / "libcuda.so.1")
    return folder


def blamed(home: Path, fake: Path, program: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (home / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "unstall", "run", "--blame", *options, home / "program.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(fake), "CUDA_HOME": str(home), **environment},
        timeout=60,
        check=False,
    )


def test_the_report_goes_to_stderr_and_the_program_keeps_its_output_and_exit_code(home: Path, fake: Path) -> None:
    done = blamed(home, fake, FAULT)
    assert (done.returncode, done.stdout) == (1, "so far so good\n")
    assert f"in the work of {home}/program.py:3: an index is out of range" in " ".join(done.stderr.split())


def test_the_line_that_noticed_and_the_assertion_are_data(home: Path, fake: Path) -> None:
    told = json.loads(blamed(home, fake, FAULT, "--format", "json").stdout)
    assert (told["noticed"]["where"]["line"], told["noticed"]["call"]) == (9, "cuStreamSynchronize")
    assert told["assertion"] == ASSERTION


def test_of_two_streams_both_lines_are_told_with_the_command_that_finds_the_one(home: Path, fake: Path) -> None:
    told = " ".join(blamed(home, fake, TWO_STREAMS).stderr.split())
    assert "program.py:3" in told
    assert "program.py:4" in told
    assert "--pin-down" in told


def test_a_program_without_a_fault_is_told_to_have_none(home: Path, fake: Path) -> None:
    done = blamed(home, fake, "import torch\ntorch.launch(b'add')\ntorch.synchronize()\n")
    assert (done.returncode, done.stderr.strip()) == (0, "unstall: no fault was seen")


def test_a_core_dump_leaves_the_line_that_launched_its_kernel(home: Path, fake: Path) -> None:
    told = json.loads(blamed(home, fake, WITH_A_DUMP, "--core-dump", "--format", "json").stdout)
    assert [suspect["where"]["line"] for suspect in told["suspects"]] == [4]
    assert told["dump"]["grids"][0]["exception"]["name"] == "Warp Illegal Address"


def test_a_wait_that_did_not_tell_of_an_assertion_hides_no_line(home: Path, fake: Path) -> None:
    told = json.loads(blamed(home, fake, WAITS_IN_VAIN, "--core-dump", "--format", "json").stdout)
    assert [suspect["where"]["line"] for suspect in told["suspects"]] == [3]
    assert (told["code"], told["suspects"][0]["others"]) == (710, [])


def test_a_program_is_not_armed_unless_it_is_asked_for(home: Path, fake: Path) -> None:
    told = json.loads(blamed(home, fake, WITH_A_DUMP, "--format", "json").stdout)
    assert {suspect["where"]["line"] for suspect in told["suspects"]} == {3, 4}
    assert (told["dump"], told["no_dump"]) == (None, "")


def test_a_second_run_is_armed_if_no_assertion_failed(home: Path, fake: Path) -> None:
    told = json.loads(blamed(home, fake, WITH_A_DUMP, "--pin-down", "--format", "json").stdout)
    assert told["dump"]["grids"][0]["kernel"] == "scale"


def test_a_second_run_is_not_armed_if_an_assertion_failed(home: Path, fake: Path) -> None:
    program = WITH_A_DUMP.replace("fake_die(700)", "fake_die(710)")
    told = json.loads(blamed(home, fake, program, "--pin-down", "--format", "json").stdout)
    assert told["dump"] is None


def test_a_core_dump_is_kept_as_the_file_that_was_named(home: Path, fake: Path, tmp_path: Path) -> None:
    kept = tmp_path / "mine.core"
    blamed(home, fake, WITH_A_DUMP, "--core-dump-to", str(kept))
    assert kept.read_bytes() == content("illegal")


def test_no_core_dump_stays_behind(home: Path, fake: Path, tmp_path: Path) -> None:
    blamed(home, fake, WITH_A_DUMP, "--core-dump", TMPDIR=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_core_dump_that_the_user_asked_cuda_for_is_read(home: Path, fake: Path, tmp_path: Path) -> None:
    theirs = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1", "CUDA_COREDUMP_FILE": str(tmp_path / "theirs.%p")}
    told = json.loads(blamed(home, fake, WITH_A_DUMP, "--format", "json", **theirs).stdout)
    assert told["dump"]["grids"][0]["kernel"] == "scale"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_driver_that_writes_no_core_dump_is_told_as_that(home: Path, fake: Path) -> None:
    done = blamed(home, fake, TWO_STREAMS, "--core-dump", FAKE_REFUSES_DUMPS="1")
    assert "No core dump: the driver was initialised before it could be told to." in " ".join(done.stderr.split())


def test_a_driver_that_would_write_all_memory_is_not_asked(home: Path, fake: Path) -> None:
    told = json.loads(blamed(home, fake, WITH_A_DUMP, "--core-dump", "--format", "json", FAKE_VERSION="12000").stdout)
    assert told["dump"] is None
    assert told["no_dump"].startswith("this driver, of CUDA 12.0, writes none")


def test_a_core_dump_needs_blame(home: Path, fake: Path) -> None:
    (home / "program.py").write_text("")
    command = [sys.executable, "-m", "unstall", "run", "--core-dump", str(home / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "unstall: --core-dump needs --blame\n")
