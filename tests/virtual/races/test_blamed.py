"""`unstall run --blame --races` from the command line to the report. The program makes itself a virtual GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from virtual.races.running import PROGRAMS, lines

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ON_A_VIRTUAL_GPU = """
import runpy, sys
from unstall.virtual.entry import virtual_gpu
virtual_gpu("h200").start()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def blamed(folder: Path, program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "run.py").write_text(ON_A_VIRTUAL_GPU)
    command = [
        sys.executable,
        "-m",
        "unstall",
        "run",
        "--blame",
        "--races",
        *options,
        str(folder / "run.py"),
        program.name,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=program.parent)


def test_the_program_goes_on_and_the_report_follows(tmp_path: Path) -> None:
    program = PROGRAMS / "planted" / "losses_read_early.py"
    done = blamed(tmp_path, program)
    first, second = lines("losses_read_early")

    assert (done.returncode, done.stdout) == (0, "True\n")
    told = " ".join(done.stderr.split())
    assert f"1 race: results may be wrong, and differ from run to run; between {program.name}:{first} and" in told
    assert f"aten::item at losses_read_early.py:{second} on the host reads 4 B that aten::to at" in told


def test_races_of_a_program_that_is_killed_are_kept(tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    planted = (PROGRAMS / "planted" / "written_twice.py").read_text()
    program.write_text(f"{planted}\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    done = blamed(tmp_path, program, "--format", "json")
    (race,) = json.loads(done.stdout)["races"]

    assert (race["earlier"]["where"]["line"], race["later"]["where"]["line"]) == lines("written_twice")


def test_a_worker_of_a_loader_and_other_modes_are_left_alone(tmp_path: Path) -> None:
    program = tmp_path / "others.py"
    program.write_text(
        "import torch\n"
        "from torch.testing._internal.two_tensor import TwoTensor\n"
        "from torch.utils.data import DataLoader\n"
        "side = torch.cuda.Stream()\n"
        "pair = TwoTensor(torch.ones(9, device='cuda'), torch.ones(9, device='cuda'))\n"
        "pair.mul_(2)\n"
        "with torch.cuda.stream(side):\n"
        "    total = pair.sum()\n"
        "side.synchronize()\n"
        "print([batch.cuda().sum().item() for batch in DataLoader(range(8), num_workers=2, batch_size=4)])\n"
    )
    done = blamed(tmp_path, program, "--format", "json")
    told = json.loads(done.stdout)

    assert "[6, 22]" in done.stderr
    assert told["races_missing"] == ""
    assert [(race["earlier"]["where"]["line"], race["later"]["where"]["line"]) for race in told["races"]] == [(6, 8)]


def test_a_block_in_a_program_has_its_own_races(tmp_path: Path) -> None:
    program = tmp_path / "block.py"
    program.write_text(
        "from unstall.virtual.entry import virtual_gpu\n"
        "virtual_gpu('h200').start()\n"
        "import torch\n"
        "import unstall\n"
        "side = torch.cuda.Stream()\n"
        "for races in (True, True, False):\n"
        "    x = torch.ones(100, device='cuda')\n"
        "    torch.cuda.synchronize()\n"
        "    with unstall.blame(races=races) as blaming:\n"
        "        x.add_(1)\n"
        "        with torch.cuda.stream(side):\n"
        "            x.sum()\n"
        "    found = blaming.report.result.races\n"
        "    print(found and [(each.earlier.where.line, each.later.where.line, each.count) for each in found])\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600, check=False)

    assert done.stdout.splitlines() == ["[(10, 12, 1)]", "[(10, 12, 1)]", "None"], done.stderr


def test_work_on_another_device_is_on_that_devices_streams(tmp_path: Path) -> None:
    program = tmp_path / "devices.py"
    program.write_text(
        "from unstall.virtual.entry import virtual_gpu\n"
        "virtual_gpu('h200:2').start()\n"
        "import torch\n"
        "import unstall\n"
        "x = torch.ones(1 << 20, device='cuda:1')\n"
        "y = torch.ones(1 << 20, device='cuda:1')\n"
        "torch.cuda.synchronize(1)\n"
        "with torch.cuda.device(1):\n"
        "    side = torch.cuda.Stream()\n"
        "with unstall.blame(races=True) as blaming:\n"
        "    x.mul_(2)\n"
        "    with torch.cuda.stream(torch.cuda.Stream(0)):\n"
        "        x.add_(1)  # on the default stream of its own device, as before\n"
        "        z = torch.zeros_like(x)\n"
        "    z.add_(x.cpu().to('cuda:1'))\n"
        "    z.cuda(0).add_(1)\n"
        "    torch.ones(9, device='cuda:0').cuda(1).add_(1)\n"
        "    y.mul_(2)\n"
        "    torch.cuda.synchronize(0)  # of the other device\n"
        "    with torch.cuda.stream(side):\n"
        "        y.add_(1)\n"
        "    torch.cuda.synchronize(1)\n"
        "    y.mul_(2)\n"
        "for race in blaming.report.result.races:\n"
        "    print(race.earlier.where.line, race.later.where.line, race.earlier.stream)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600, check=False)

    assert done.stdout == "18 21 the default stream of cuda:1\n", done.stderr
