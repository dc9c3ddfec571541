"""`unstall run --blame` from the command line to the report: on a driver that the program tells what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unstall.blaming.child import RING, STATE

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the driver is followed on Linux alone"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver of these tests is built by gcc"),
]

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


def blamed(home: Path, fake: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    (home / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "unstall", "run", "--blame", *options, home / "program.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(fake), "CUDA_HOME": str(home)},
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


def test_a_torch_in_which_races_cannot_be_looked_for_is_told_and_the_program_goes_on(home: Path, fake: Path) -> None:
    done = blamed(home, fake, "import torch\ntorch.synchronize()\nprint('done')\n", "--races")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.splitlines() == [
        "unstall: no fault was seen",
        "unstall: no race was seen, but races may be missing: races cannot be looked for with torch 2.fake: it has no "
        "torch._C._activate_gpu_trace",
    ]


def test_cuda_is_initialised_though_there_is_no_room_to_say_so(home: Path, fake: Path, tmp_path: Path) -> None:
    """What is written to /dev/full finds no room."""
    (tmp_path / STATE).symlink_to("/dev/full")
    program = (
        "import pathlib, sys\n"
        "from unstall.blaming.child import start\n"
        "start(pathlib.Path(sys.argv[1]))\n"
        "import torch  # CUDA is initialised\n"
        "torch.launch(b'add')\n"
        "torch.synchronize()\n"
        "print('done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        capture_output=True,
        text=True,
        cwd=home,
        env={**os.environ, "LD_LIBRARY_PATH": str(fake), "CUDA_HOME": str(home)},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert (tmp_path / RING).exists()


def test_races_need_blame(home: Path) -> None:
    (home / "program.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "unstall", "run", "--races", home / "program.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--races needs --blame" in done.stderr
