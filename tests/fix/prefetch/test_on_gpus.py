"""`prefetch` on the virtual GPU, with its race finder, and on a real one."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu
from fix.prefetch import programs

from unstall.answers.report import read_result

pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_batch_of_2500_is_corrupted_by_loaders_that_write_and_consumers_that_wait(tmp_path: Path, seed: int) -> None:
    assert "ALL 2" in on_virtual_gpu(tmp_path, programs.LIFETIMES.format(batches=2500, seed=seed))


@pytest.mark.slow
def test_on_a_virtual_gpu_times_do_not_depend_on_how_fast_the_threads_run(tmp_path: Path) -> None:
    said = {on_virtual_gpu(tmp_path, programs.PAUSES.format(seed=seed)) for seed in range(10)}
    assert len(said) == 1


@pytest.mark.slow
def test_batches_are_copied_beside_a_long_kernel_as_by_a_stream_of_ones_own(tmp_path: Path) -> None:
    said = {on_virtual_gpu(tmp_path, programs.BESIDE.format(gib=30)) for _ in range(2)}
    (times,) = said  # to the nanosecond
    by_hand, by_prefetch, retries = map(int, times.split()[1:4])
    assert (by_prefetch <= 1.01 * by_hand, retries) == (True, 0)


@pytest.mark.slow
def test_batches_wait_for_memory_that_the_program_needs(tmp_path: Path) -> None:
    said = {on_virtual_gpu(tmp_path, programs.BESIDE.format(gib=2)) for _ in range(2)}
    (times,) = said
    by_hand, by_prefetch, retries = map(int, times.split()[1:4])
    assert (by_prefetch > by_hand, retries) == (True, 0)
    assert "FITS" in on_virtual_gpu(tmp_path, programs.GROWS)


@pytest.mark.ci
def test_helpers_that_time_themselves_hardly_make_the_virtual_gpu_simulate(tmp_path: Path) -> None:
    """A simulation costs most of a millisecond. Each read of the clock was one: 6 to 7 a batch, and one a step."""
    said = on_virtual_gpu(tmp_path, programs.SIMULATIONS)
    steps, in_place, ahead = map(int, said.split("SIMULATED")[1].split()[:3])
    assert steps <= 2
    assert in_place <= 110  # one a batch: whether the batch was late decides what comes next
    assert ahead <= 470  # what a batch asks of events


@pytest.mark.slow
def test_threads_that_share_an_iterator_are_told_so(tmp_path: Path) -> None:
    assert "CLEAR" in on_virtual_gpu(tmp_path, programs.SHARED)


@pytest.mark.slow
def test_shuffles_draws_and_values_are_those_of_the_plain_loop(tmp_path: Path) -> None:
    assert "SAME" in on_virtual_gpu(tmp_path, programs.ORDER)


@pytest.mark.slow
def test_the_state_is_that_of_the_batch_given_last(tmp_path: Path) -> None:
    assert "RESUMED" in on_virtual_gpu(tmp_path, programs.STATE)


@pytest.mark.slow
def test_what_is_waited_for_and_what_is_hidden_is_as_long_as_it_was(tmp_path: Path) -> None:
    assert "TOLD" in on_virtual_gpu(tmp_path, programs.SLOW_LOADER)


_SLOW = """
import time, torch, unstall
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 160
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((64,), float(i))
weight = torch.ones(64, 64, device="cuda", requires_grad=True)
step = torch.optim.SGD([weight], lr=0.1)
for batch in unstall.prefetch(torch.utils.data.DataLoader(Slow(), batch_size=8), depth=2):
    (batch @ weight).sum().backward()
    step.step()
"""


@pytest.mark.slow
def test_waits_for_its_thread_are_told_as_data_loading_at_the_programs_own_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_SLOW)
    command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "-o", "report.json", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    result = read_result(tmp_path / "report.json")
    assert result.verdict.bound_by == "input", done.stderr
    finding = result.findings[0]
    assert (finding.rule, finding.where.file, finding.where.line) == ("data-loading", "program.py", 10)
    assert "a thread fetches ahead" in finding.saw
    assert "num_workers" in finding.fix


@pytest.mark.slow
def test_an_iteration_that_ended_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    assert "FREED" in on_virtual_gpu(tmp_path, programs.FREED)


@pytest.mark.slow
def test_a_loader_whose_workers_fetch_ahead_gets_no_thread_more_for_small_copies(tmp_path: Path) -> None:
    assert "BESIDE" in on_virtual_gpu(tmp_path, programs.WORKERS)


@pytest.mark.slow
def test_a_loader_that_raises_and_goes_on_has_the_states_of_a_plain_loop(tmp_path: Path) -> None:
    assert "STATES" in on_virtual_gpu(tmp_path, programs.RAISES)


@pytest.mark.slow
def test_a_loader_that_draws_late_draws_what_it_would_in_a_plain_loop(tmp_path: Path) -> None:
    assert "AS DRAWN" in on_virtual_gpu(tmp_path, programs.DRAWS_LATE)


@pytest.mark.slow
def test_one_small_batch_tells_of_those_that_are_like_it_and_of_no_others(tmp_path: Path) -> None:
    assert "LOOKED AGAIN" in on_virtual_gpu(tmp_path, programs.SMALL_FIRST)


@pytest.mark.slow
def test_a_program_that_leaves_an_iteration_open_ends(tmp_path: Path) -> None:
    start = time.monotonic()
    assert "LEAVING" in on_virtual_gpu(tmp_path, programs.LEFT_OPEN)
    assert time.monotonic() - start < 120


@pytest.mark.gpu
@pytest.mark.slow
def test_no_batch_of_10000_is_corrupted_on_a_real_gpu(tmp_path: Path) -> None:
    assert "ALL 1" in on_real_gpu(tmp_path, programs.LIFETIMES.format(batches=10_000, seed=99))


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("program", ["ORDER", "STATE", "LEFT_OPEN", "FREED"])
def test_order_state_and_ends_on_a_real_gpu(tmp_path: Path, program: str) -> None:
    assert on_real_gpu(tmp_path, getattr(programs, program))


@pytest.mark.ci
def test_no_thread_fetches_while_two_iterations_of_a_loader_are_under_way(tmp_path: Path) -> None:
    assert "ONE THREAD" in on_virtual_gpu(tmp_path, programs.TWO_AT_ONCE)
