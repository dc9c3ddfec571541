"""Markers on a virtual GPU: which tests fail, and what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from testing.running import Ran, copied, line_of, run_tests

pytestmark = pytest.mark.slow

HOLD = [
    *("test_does_not_wait", "test_grows_the_cache", "test_waits_twice", "test_launches_three", "test_takes_little"),
    *("test_is_busy", "test_is_ordered", "TestOfClass::test_may_wait", "test_of_no_gpu"),
    *("test_grows_the_cache_more_than_once", "TestAsyncCase::test_does_not_wait"),
]
BREAK = [
    *("test_waits", "test_catches_the_error", "test_waits_three_times", "test_launches_four", "test_takes_much"),
    *("test_is_idle", "test_races[first]", "test_races[again]", "test_waits_in_a_task", "test_is_async_and_waits"),
    *("test_waits_in_a_runner_of_a_fixture", "TestAsyncCase::test_waits"),
    *("test_has_no_work", "test_does_not_use_torch", "TestOfClass::test_waits"),
]


@pytest.fixture(scope="module", params=["one process", "two workers"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("limits")
    copied("limits", folder)
    workers = ["-n", "2"] if request.param == "two workers" else ["-p", "no:xdist"]
    return run_tests(folder, "--unstall-gpu", "h200", "--import-mode=importlib", *workers)


@pytest.fixture(scope="module")
def ran_on_a_gpu(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("limits")
    copied("limits", folder)
    return run_tests(folder, "--import-mode=importlib", "-p", "no:xdist")


def outcome(ran: Ran, test: str) -> str:
    return ran.outcomes[f"test_limits.py::{test}"]


@pytest.mark.parametrize("test", HOLD)
def test_a_limit_that_holds_passes(ran: Ran, test: str) -> None:
    assert outcome(ran, test) == "PASSED"


@pytest.mark.parametrize("test", BREAK)
def test_a_limit_that_is_exceeded_fails(ran: Ran, test: str) -> None:
    assert outcome(ran, test) == "FAILED"


def test_no_sync_fails_at_the_line_that_waits(ran: Ran) -> None:
    told = ran.told("test_waits")
    assert told.rstrip().endswith(f"test_limits.py:{line_of('limits', 'the wait')}: SyncError")
    assert f"SyncError: test_limits.py:{line_of('limits', 'the wait')}: y.sum().item() waits for the GPU" in told


def test_waits_are_told_by_line(ran: Ran) -> None:
    told = ran.told("test_waits_three_times")
    assert "limit_syncs(2): the CPU waited for the GPU 3 times:" in told
    assert f"  2x test_limits.py:{line_of('limits', 'often')}: x.sum().item()\n" in told


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        ("test_launches_four", "limit_launches(3): the test launched 4 kernels, graphs, copies and memsets"),
        ("test_takes_much", 'limit_device_memory("22 MiB"): torch reserved 24.0 MiB at the peak'),
        ("test_catches_the_error", "no_sync: the test went on after a wait that it caught:"),
        ("test_has_no_work", 'limit_idle("99%"): device idle cannot be checked: '),
        ("test_does_not_use_torch", 'limit_idle("99%"): device idle cannot be checked: '),
        ("test_is_idle", 'limit_idle("10%"): the GPU idles '),
    ],
)
def test_a_sentence_says_what_was_exceeded(ran: Ran, test: str, sentence: str) -> None:
    assert any(line.startswith(sentence) for line in ran.told(test).splitlines())


@pytest.mark.parametrize("time", ["first", "again"])
def test_a_race_is_found_in_each_test_that_has_it(ran: Ran, time: str) -> None:
    told = ran.told(f"test_races[{time}]")
    assert f"test_limits.py:{line_of('limits', 'the race')}: Race: read before the write has finished" in told


def test_a_test_that_may_fail_may_exceed_its_limit(ran: Ran) -> None:
    assert outcome(ran, "test_is_expected_to_wait") == "XFAIL"


def test_a_marker_that_makes_no_sense_is_an_error_that_names_the_test(ran: Ran) -> None:
    assert outcome(ran, "test_has_a_wrong_marker") == "ERROR"
    expected = 'test_limits.py::test_has_a_wrong_marker: @pytest.mark.limit_syncs("2"): give a whole number, 0 or more'
    assert expected in ran.text


def test_the_summary_counts_what_tests_do_without_their_fixtures(ran: Ran) -> None:
    title, sums, *_ = ran.section
    assert title.startswith("unstall: virtual h200, torch 2.")
    assert sums.startswith("21 tests used the GPU: ")
    often = line_of("limits", "often")
    assert any(line.startswith("  2x in 1 test ") and f"test_limits.py:{often} " in line for line in ran.section)
    assert not any(f"test_limits.py:{line_of('limits', 'a wait of a fixture')} " in line for line in ran.section)


@pytest.mark.gpu
class TestRealGpu:
    """The same tests on this machine's GPU. It cannot predict idle time."""

    @pytest.fixture
    def ran(self, ran_on_a_gpu: Ran) -> Ran:
        return ran_on_a_gpu

    @pytest.mark.parametrize("test", [test for test in HOLD if test != "test_is_busy"])
    def test_a_limit_that_holds_passes(self, ran: Ran, test: str) -> None:
        assert outcome(ran, test) == "PASSED"

    @pytest.mark.parametrize("test", BREAK)
    def test_a_limit_that_is_exceeded_fails(self, ran: Ran, test: str) -> None:
        assert outcome(ran, test) == "FAILED"

    def test_no_sync_fails_at_the_line_that_waits(self, ran: Ran) -> None:
        wait = f"test_limits.py:{line_of('limits', 'the wait')}"
        assert f"SyncError: {wait}: y.sum().item() waits for the GPU" in ran.told("test_waits")

    def test_a_refused_wait_is_in_the_summary(self, tmp_path: Path) -> None:
        copied("limits", tmp_path)
        ran = run_tests(tmp_path, "--import-mode=importlib", "-p", "no:xdist", "test_limits.py::test_waits")
        assert "  no_sync  test_limits.py::test_waits" in ran.section
