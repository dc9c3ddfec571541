"""`unstall run --blame --core-dump`: a second run writes a dump of the same fault.

The program stands for the driver, too: it writes a dump if it is asked for one, and if CUPTI is not subscribed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blaming.core_dump.dumps import FOLDER, content

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the driver is followed on Linux alone"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver of these tests is built by gcc"),
]

SENTENCE = "CUDA coredump is not supported with other developer tools (name of tool in use: 'CUPTI for <not provided>')"
FAULT = f"""import os, torch
torch.driver.fake_die(0)
torch.launch(b"add", 7)
torch.launch(b"scale", 8)  # the fault
print("ran", flush=True)
if os.environ.get("CUDA_ENABLE_COREDUMP_ON_EXCEPTION") == "1":
    if False:  # CUPTI is subscribed
        os.write(2, b"vm: {SENTENCE}. Disabling coredump.\\n")
    else:
        import lzma
        with open(os.environ["CUDA_COREDUMP_FILE"].replace("%p", str(os.getpid())), "wb") as dump:
            dump.write(lzma.decompress(open({str(FOLDER / "illegal.core.xz")!r}, "rb").read()))
torch.driver.fake_die(700)
torch.synchronize()
"""
THEIRS = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"
IS_SECOND = f'os.environ.get("{THEIRS}") == "1"'
WITHOUT_A_FAULT_AT_LAST = FAULT.replace("fake_die(0)", f"fake_die(0); {IS_SECOND} and os._exit(0)")
WITHOUT_A_DUMP = FAULT.replace("if os.environ", "if None and os.environ")
WITH_CUPTI = FAULT.replace("if False:", "if True:")
ASSERTED = FAULT.replace("fake_die(700)", "fake_die(710)")
ANOTHER = FAULT.replace("fake_die(700)", "fake_die(716)")


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


def result(home: Path, fake: Path, program: str, *options: str, **environment: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(blamed(home, fake, program, *options, "--format", "json", **environment).stdout)
    return told


def lines(told: dict[str, Any]) -> set[int]:
    return {suspect["where"]["line"] for suspect in told["suspects"]}


def test_the_line_that_launched_the_kernel_of_the_dump_is_left(home: Path, fake: Path) -> None:
    told = result(home, fake, FAULT, "--core-dump")
    assert lines(told) == {4}
    assert told["dump"]["grids"][0]["exception"]["name"] == "Warp Illegal Address"


def test_without_the_option_the_program_runs_once_and_both_lines_are_left(home: Path, fake: Path) -> None:
    done = blamed(home, fake, FAULT)
    assert done.stdout == "ran\n"
    assert "program.py:3" in done.stderr
    assert "core dump" not in done.stderr


def test_the_second_run_is_announced(home: Path, fake: Path) -> None:
    done = blamed(home, fake, FAULT, "--core-dump")
    assert done.stdout == "ran\nran\n"
    assert "unstall: the program runs again, for a core dump\n" in done.stderr


def test_a_pinned_run_comes_before_that_of_the_dump(home: Path, fake: Path) -> None:
    done = blamed(home, fake, FAULT, "--core-dump", "--pin-down")
    assert done.stdout == "ran\n" * 3
    assert (
        done.stderr.index("and waits after") < done.stderr.index("for a core dump") < done.stderr.index("exception: ")
    )


def test_a_pinned_run_alone_writes_no_dump(home: Path, fake: Path) -> None:
    told = result(home, fake, FAULT, "--pin-down")
    assert (told["dump"], told["no_dump"]) == (None, "")


def test_a_failed_assertion_needs_no_second_run(home: Path, fake: Path) -> None:
    done = blamed(home, fake, ASSERTED, "--core-dump")
    assert done.stdout == "ran\n"
    assert "No core dump: a failed assertion names its kernel without one." in " ".join(done.stderr.split())


def test_without_a_fault_there_is_no_second_run(home: Path, fake: Path) -> None:
    done = blamed(home, fake, "import torch\nprint('ran')\n", "--core-dump")
    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_a_fault_that_does_not_come_back_leaves_what_the_first_run_told(home: Path, fake: Path) -> None:
    told = result(home, fake, WITHOUT_A_FAULT_AT_LAST, "--core-dump")
    assert told["no_dump"] == "the fault did not come back in the second run"
    assert lines(told) == {3, 4}


def test_the_exit_code_is_that_of_the_run_which_the_report_is_about(home: Path, fake: Path) -> None:
    assert blamed(home, fake, WITHOUT_A_FAULT_AT_LAST, "--core-dump").returncode == 1


def test_a_dump_of_another_fault_leaves_what_the_first_run_told(home: Path, fake: Path) -> None:
    told = result(home, fake, ANOTHER, "--core-dump")
    assert told["no_dump"].startswith("the second run had another fault, Warp Illegal Address")
    assert (lines(told), told["dump"]) == ({3, 4}, None)


def test_a_driver_that_writes_no_dump_is_told_as_that(home: Path, fake: Path) -> None:
    assert result(home, fake, WITHOUT_A_DUMP, "--core-dump")["no_dump"] == "the driver wrote none in the second run"


def test_why_the_driver_wrote_no_dump_is_told_in_its_words(home: Path, fake: Path) -> None:
    told = result(home, fake, WITH_CUPTI, "--core-dump")
    assert told["no_dump"] == f"in the second run the driver said: {SENTENCE}"


def test_a_driver_that_would_write_all_memory_is_not_asked(home: Path, fake: Path) -> None:
    done = blamed(home, fake, FAULT, "--core-dump", FAKE_VERSION="12000")
    assert done.stdout == "ran\n"
    assert "No core dump: this driver, of CUDA 12.0, writes none" in " ".join(done.stderr.split())


def test_a_dump_is_kept_as_the_file_that_was_named(home: Path, fake: Path, tmp_path: Path) -> None:
    kept = tmp_path / "mine.core"
    blamed(home, fake, FAULT, "--core-dump-to", str(kept))
    assert kept.read_bytes() == content("illegal")


def test_a_dump_that_cannot_be_kept_costs_no_report(home: Path, fake: Path) -> None:
    done = blamed(home, fake, FAULT, "--core-dump-to", "/dev/full")
    assert "unstall: the core dump cannot be kept as /dev/full: No space left on device\n" in done.stderr
    assert "exception: Warp Illegal Address" in done.stderr


def test_the_dump_of_a_child_process_is_not_taken_for_the_programs(home: Path, fake: Path) -> None:
    told = result(home, fake, FAULT.replace("str(os.getpid())", "str(os.getpid() + 1)"), "--core-dump")
    assert told["no_dump"].startswith("the program's own process wrote none, but another")
    assert (lines(told), told["dump"]) == ({3, 4}, None)


def test_a_run_that_may_be_ended_is_not_one_for_a_dump(home: Path, fake: Path) -> None:
    done = blamed(home, fake, FAULT, "--core-dump", "--end-hung")
    assert done.returncode == 2
    assert done.stderr.startswith("unstall: --end-hung and --core-dump exclude each other: ")


def test_no_dump_stays_behind(home: Path, fake: Path, tmp_path: Path) -> None:
    blamed(home, fake, FAULT, "--core-dump", TMPDIR=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_each_run_writes_its_dump_where_the_user_wants_it(home: Path, fake: Path, tmp_path: Path) -> None:
    theirs = {THEIRS: "1", "CUDA_COREDUMP_FILE": str(tmp_path / "theirs.%p")}
    assert lines(result(home, fake, FAULT, "--core-dump", **theirs)) == {4}
    assert len(list(tmp_path.iterdir())) == 2


def test_a_core_dump_needs_blame(home: Path) -> None:
    (home / "program.py").write_text("")
    command = [sys.executable, "-m", "unstall", "run", "--core-dump", str(home / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "unstall: --core-dump needs --blame\n")
