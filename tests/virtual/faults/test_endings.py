"""Ways in which a program meets a fault: it waits at each launch, catches it, never notices it; or memory is full."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from virtual.faults.running import PROGRAMS, line, outcome

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_nothing_of_speed_is_said_at_the_end_of_the_run() -> None:
    said = outcome("embedding").stderr

    assert "The program ended by a device fault at embedding.py:9" in said
    assert "index 1024 at [1023] is out of bounds for a table of 1024 rows" in said
    assert "plan:" not in said
    assert "gain" not in said
    assert "--against" not in said


def test_the_result_has_no_plan_and_no_costs() -> None:
    result = outcome("embedding").result

    assert (result["plan"], result["replay"], result["lines"]) == (None, None, [])
    assert result["verdict"]["bound_by"] == "none"


def test_launches_that_block_are_noticed_at_the_line_itself() -> None:
    done = outcome("embedding", CUDA_LAUNCH_BLOCKING="1")

    assert done.finding["where"]["line"] == done.fault["noticed_at"]["line"] == line("embedding")


def test_a_fault_that_the_program_catches_is_told() -> None:
    done = outcome("caught")

    assert (done.code, done.stdout) == (0, "again on the CPU\n4.0\n")
    assert done.finding["where"]["line"] == line("caught")
    assert done.fault["ended"] is False


def test_a_fault_that_nothing_waits_for_is_told_though_the_program_ends_well() -> None:
    done = outcome("unnoticed")

    assert (done.code, done.stdout) == (0, "done\n")
    assert done.finding["where"]["line"] == line("unnoticed")
    assert done.fault["noticed_at"] is None
    assert "of which Python was never told" in done.stderr


def test_each_device_has_its_own_and_the_last_ended_the_program() -> None:
    findings = outcome("devices", gpu="h200:2").result["findings"]

    assert [
        (each["fault"]["device"], each["fault"]["wrong"]["value"], each["fault"]["ended"]) for each in findings
    ] == [
        (0, 4, False),
        (1, 5, True),
    ]


def test_a_correct_program_has_no_such_finding() -> None:
    done = outcome("correct")

    assert done.code == 0
    assert {finding["rule"] for finding in done.result["findings"] if finding["wrong"]} == set()
    assert len(done.result["findings"]) > 0


def test_a_backward_pass_of_the_programs_own_is_told_with_its_forward_call() -> None:
    where = outcome("own_backward").finding["where"]

    assert where["line"] == line("own_backward")
    assert where["called_from"]["line"] == line("own_backward", "FORWARD")


def test_the_steps_asked_for_do_not_hide_it() -> None:
    done = outcome("cross_entropy", options=("--warmup", "0", "--steps", "2"))

    assert done.finding["where"]["line"] == line("cross_entropy")
    assert done.fault["iteration"] == 4


def test_a_block_tells_of_its_own_faults_alone() -> None:
    done = subprocess.run(
        [sys.executable, "two_blocks.py"], capture_output=True, text=True, cwd=PROGRAMS, timeout=600, check=False
    )

    assert done.stdout == "[1, 0]\n"


def test_full_memory_is_told_with_what_holds_it_by_line() -> None:
    finding = outcome("full_memory").finding
    held = [(part["where"]["line"], part["bytes"] >> 20, part["count"]) for part in finding["fault"]["held"]]

    assert (finding["rule"], finding["where"]["line"]) == ("out-of-memory", line("full_memory", "KEPT"))
    assert held == [(line("full_memory", "KEPT"), 100, 5), (line("full_memory", "HELPER"), 40, 1)]


def test_an_error_that_the_program_raises_again_after_another_is_told_at_its_own_line() -> None:
    done = outcome("tried_again")

    assert done.stdout == "half of it is too much, too\n"
    assert done.finding["where"]["line"] == line("tried_again")


def test_the_module_that_runs_a_program_in_its_process_explains_what_ended_it() -> None:
    command = [sys.executable, "-m", "unstall.virtual", "--explain", "tried_again.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROGRAMS, check=False)

    assert f"The program ended at tried_again.py:{line('tried_again')}, as the device's memory was full" in done.stderr


def test_full_memory_that_the_program_catches_is_no_finding() -> None:
    done = outcome("full_memory", "caught")

    assert (done.code, done.stdout) == (0, "5\n")
    assert [finding for finding in done.result["findings"] if finding["wrong"]] == []


def test_a_rank_without_a_report_tells_of_its_fault(tmp_path_factory: pytest.TempPathFactory) -> None:
    trace = tmp_path_factory.mktemp("ranks") / "run.json.gz"
    ours = ["-m", "unstall", "run", "--gpu", "h200:2", "--trace", str(trace), "ranks.py"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *ours],
        capture_output=True,
        text=True,
        cwd=PROGRAMS,
        timeout=600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    assert f"unstall: rank 1: The program ended by a device fault at ranks.py:{line('ranks')}: index 4" in done.stderr
