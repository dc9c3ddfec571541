"""The pytest plugin: its options, its markers and its hooks.

pytest imports this file in every test run, so the file imports little. It imports the rest of this folder when a test
run uses the plugin. `call.py` has the code that runs around each test. `totals.py` adds up the figures of all tests.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from unstall.testing.counts_of_test import PROPERTIES

if TYPE_CHECKING:
    from unstall.testing.baseline import Baseline
    from unstall.testing.limits import MarkerLimit
    from unstall.testing.totals import Totals
    from unstall.virtual.entry import VirtualGpu

MARKERS = {
    "no_sync": "no_sync: fail at the line that makes the CPU wait for the GPU",
    "limit_syncs": "limit_syncs(n): fail if the CPU waits for the GPU more than n times",
    "limit_launches": "limit_launches(n): fail if the test launches more than n kernels, graphs, copies and memsets",
    "limit_device_memory": 'limit_device_memory("2 GB"): fail if torch reserves more memory of a GPU at the peak',
    "limit_idle": 'limit_idle("10%"): fail if the GPU idles for more of the time, as the virtual GPU predicts',
    "no_race": "no_race: fail if streams, or the GPU and the CPU, use the same memory in no order",
}
_GPU: pytest.StashKey[VirtualGpu] = pytest.StashKey()
_BASELINE: pytest.StashKey[Baseline] = pytest.StashKey()
_LIMITS: pytest.StashKey[dict[str, MarkerLimit]] = pytest.StashKey()
_REPORTS: pytest.StashKey[_Reports] = pytest.StashKey()
_TOTALS: pytest.StashKey[Totals] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("unstall", "waits, launches and memory of tests on a GPU (unstall)")
    gpu = "give the tests a virtual GPU, so that they need no real one: h200, or h200:2 for two"
    baseline = "write how often each test waits and launches, and how much memory it takes, to FILE, or update FILE"
    fail = "leave FILE of --unstall-baseline as it is, and fail tests that do more than it says"
    group.addoption("--unstall-gpu", metavar="NAME", help=gpu)
    group.addoption("--unstall-baseline", metavar="FILE", help=baseline)
    group.addoption("--fail-on-increase", action="store_true", default=None, help=fail)
    group.addoption("--no-fail-on-increase", action="store_false", dest="fail_on_increase", help="update FILE")
    parser.addini("unstall_gpu", f"--unstall-gpu: {gpu}", default="")
    parser.addini("unstall_baseline", f"--unstall-baseline: {baseline}. From the root folder", default="")
    parser.addini("unstall_fail_on_increase", f"--fail-on-increase: {fail}", type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _begin_gpu(early_config, early_config.known_args_namespace)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for words in MARKERS.values():
        config.addinivalue_line("markers", words)
    _begin_gpu(config, config.option)  # if PYTEST_DISABLE_PLUGIN_AUTOLOAD is set, a conftest.py may load this plugin
    path, fails = config.option.unstall_baseline, config.option.fail_on_increase
    path = path or (config.getini("unstall_baseline") and config.rootpath / config.getini("unstall_baseline"))
    fails = config.getini("unstall_fail_on_increase") if fails is None else fails
    if path or fails:
        from unstall.testing.baseline import read

        config.stash[_BASELINE] = read(path, fails=fails)
    if not hasattr(config, "workerinput"):  # else pytest-xdist's controller gets the reports
        config.stash[_REPORTS] = reports = _Reports()
        config.pluginmanager.register(reports, "unstall-reports")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if any(mark.name in MARKERS for mark in item.iter_markers()):
        from unstall.testing.limits import limits_of

        item.stash[_LIMITS] = limits_of(item)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    baseline, limits = item.config.stash.get(_BASELINE, None), item.stash.get(_LIMITS, {})
    if baseline is None and _GPU not in item.config.stash and not limits:
        return (yield)
    from unstall.testing.call import Call

    with Call(item, limits, baseline):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    reports = config.stash.get(_REPORTS, None)
    if reports is None or not (reports.of_calls or _BASELINE in config.stash):
        return
    from unstall.testing.totals import total

    config.stash[_TOTALS] = totals = total(reports.of_calls, config.stash.get(_BASELINE, None))
    if totals.is_error and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    totals = config.stash.get(_TOTALS, None)
    if totals is not None:
        from unstall.testing.summary import show

        show(totals, terminalreporter)


class _Reports:
    """Collects the reports of tests that carry counts. With pytest-xdist, the controller gets the
    reports of all workers.
    """

    def __init__(self) -> None:
        self.of_calls: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and any(name in PROPERTIES for name, _ in report.user_properties):
            self.of_calls.append(report)


def _begin_gpu(config: pytest.Config, options: Any) -> None:
    """Starts the virtual GPU, if one is asked for. It has to be there before pytest imports
    conftest.py files, which may import torch.
    """
    name = options.unstall_gpu if options.unstall_gpu is not None else config.getini("unstall_gpu")
    if not name or _GPU in config.stash or _is_controller(options):
        return
    from unstall.testing.session_gpu import begin

    config.stash[_GPU] = gpu = begin(name, config)
    config.add_cleanup(gpu.stop)


def _is_controller(options: Any) -> bool:
    """Returns whether this process is a controller of pytest-xdist: its workers run the tests.

    The workers have the same options. So early, only the environment variable PYTEST_XDIST_WORKER
    tells them from the controller. If a test in a worker starts pytest again, with a controller of
    its own, that controller inherits the variable. It is taken for a worker, and gets a virtual GPU
    that it does not need. With --pdb or --collect-only, pytest-xdist starts no workers, so there is
    no controller.
    """
    if "PYTEST_XDIST_WORKER" in os.environ or options.usepdb or options.collectonly:
        return False
    return bool(getattr(options, "numprocesses", None) or getattr(options, "tx", None))
