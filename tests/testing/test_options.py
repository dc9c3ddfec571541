"""The plugin's options in whole test runs: the virtual GPU, the baseline, and neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from testing.running import run_tests

USES_GPU = """
import pytest, torch
{mark}
def test_gpu():
    x = torch.ones(3, device="cuda")
    {line}
"""
TEST = "test_gpu.py::test_gpu"
SKIPPED = "passed, but no_sync and limit_launches(0) not checked: there is no GPU here. Use --unstall-gpu h200"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def write(folder: Path, line: str = "pass", mark: str = "") -> None:
    (folder / "test_gpu.py").write_text(USES_GPU.format(line=line, mark=mark))


def test_pytest_finds_the_plugin_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from importlib.metadata import entry_points\n"
        "def test_it(pytestconfig):\n"
        "    names = [name for name, plugin in pytestconfig.pluginmanager.list_name_plugin()\n"
        "        if getattr(plugin, '__name__', '') == 'unstall.testing.plugin']\n"
        "    assert names == [point.name for point in entry_points(group='pytest11', value='unstall.testing.plugin')]\n"
        "    assert names == ['unstall']\n"
    )
    assert run_tests(tmp_path).outcomes == {"test_it.py::test_it": "PASSED"}


def test_unused_it_imports_neither_torch_nor_numpy_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_modules.py").write_text(
        "import sys\ndef test_it():\n"
        "    assert not {'torch', 'numpy', 'msgspec', 'unstall.guarding'} & {*sys.modules}\n"
    )
    ran = run_tests(tmp_path)
    assert (ran.code, ran.section) == (0, [])


@pytest.mark.slow
class TestVirtualGpu:
    def test_it_is_there_before_a_conftest_imports_torch(self, folder: Path) -> None:
        (folder / "conftest.py").write_text("import torch\nassert torch.cuda.get_device_name() == 'NVIDIA L4'\n")
        assert run_tests(folder, "--unstall-gpu", "l4").outcomes == {TEST: "PASSED"}

    def test_it_may_be_set_in_pyproject(self, folder: Path) -> None:
        (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\nunstall_gpu = "l4"\n')
        ran = run_tests(folder)
        assert (ran.outcomes, ran.section[0][:19]) == ({TEST: "PASSED"}, "unstall: virtual l4")

    def test_child_processes_have_it_too(self, folder: Path) -> None:
        program = "import torch; torch.ones(3, device='cuda')"
        write(folder, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}], check=True)")
        assert run_tests(folder, "--unstall-gpu", "h200").outcomes == {TEST: "PASSED"}

    @pytest.mark.parametrize("option", ["--pdb", "--collect-only"])
    def test_it_is_there_early_if_there_are_no_workers(self, folder: Path, option: str) -> None:
        (folder / "conftest.py").write_text("import torch\nassert torch.cuda.get_device_name() == 'NVIDIA L4'\n")
        assert run_tests(folder, "--unstall-gpu", "l4", "-n", "auto", option).code == 0

    @pytest.mark.parametrize("workers", [[], ["-n", "2"]])
    def test_a_test_run_in_a_worker_has_its_own_summary_and_baseline(self, folder: Path, workers: list[str]) -> None:
        options = ("--unstall-gpu", "h200", "--unstall-baseline", "baseline.txt", *workers)
        ran = run_tests(folder, *options, environment={"PYTEST_XDIST_WORKER": "gw0"})
        assert ran.section[-2:] == ["baseline.txt: 1 new: it was updated", f"  new: {TEST}"]

    def test_an_unknown_one_is_an_error(self, folder: Path) -> None:
        ran = run_tests(folder, "--unstall-gpu", "h9")
        assert (ran.code, "ERROR: --unstall-gpu h9: " in ran.text) == (pytest.ExitCode.USAGE_ERROR, True)

    def test_a_plugin_that_imported_torch_before_is_named(self, folder: Path) -> None:
        (folder / "early.py").write_text("import torch\n")
        ran = run_tests(folder, "-p", "early", "--unstall-gpu", "h200")
        assert ran.code == pytest.ExitCode.USAGE_ERROR
        assert "--unstall-gpu h200: the plugin early imported torch before the virtual GPU was there." in ran.text

    def test_one_that_was_begun_before_pytest_is_used(self, folder: Path) -> None:
        write(folder, "x.sum().item()", "@pytest.mark.no_sync")
        (folder / "early.py").write_text("import torch\n")
        ran = run_tests(folder, "-p", "early", python=("-m", "unstall.virtual", "--gpu", "h200"))
        assert (ran.outcomes, ran.section[0][:21]) == ({TEST: "FAILED"}, "unstall: virtual h200")


@pytest.mark.slow
class TestWithoutAGpu:
    """The machine has none, and no virtual one is asked for."""

    def test_a_test_whose_limits_are_not_checked_is_skipped(self, folder: Path) -> None:
        (folder / "test_gpu.py").write_text(
            "import pytest, torch\n"
            "@pytest.mark.no_sync\n@pytest.mark.limit_launches(0)\ndef test_gpu():\n    torch.ones(3)\n"
        )
        ran = run_tests(folder)
        assert (ran.code, ran.text.count(SKIPPED)) == (0, 1)
        told = "2 limits of 1 test not checked: there is no GPU here. Use --unstall-gpu h200"
        assert ran.section == ["unstall", told]

    @pytest.mark.parametrize(
        ("options", "code"), [([], pytest.ExitCode.OK), (["--fail-on-increase"], pytest.ExitCode.USAGE_ERROR)]
    )
    def test_a_baseline_cannot_be_compared(self, folder: Path, options: list[str], code: pytest.ExitCode) -> None:
        (folder / "test_gpu.py").write_text("import torch\ndef test_gpu():\n    torch.ones(3)\n")
        (folder / "baseline.txt").write_text(f"launches=1 syncs=0 reserved=2MiB  {TEST}\n")
        ran = run_tests(folder, "--unstall-baseline", "baseline.txt", *options)
        assert ran.code == code
        assert ran.section[1:] == ["baseline.txt: there is no GPU here to compare with: use --unstall-gpu h200"]


def test_a_property_of_the_users_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(record_property):\n    record_property('unstall_color', 'red')\n")
    ran = run_tests(tmp_path)
    assert (ran.outcomes, ran.section) == ({"test_it.py::test_it": "PASSED"}, [])


def test_increases_in_pyproject_need_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nunstall_fail_on_increase = true\n")
    ran = run_tests(tmp_path)
    assert (ran.code, "say from what: --unstall-baseline FILE" in ran.text) == (pytest.ExitCode.USAGE_ERROR, True)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
class TestBaseline:
    def test_it_is_written_and_an_increase_fails(self, folder: Path, workers: list[str]) -> None:
        options = ["--unstall-gpu", "h200", "--unstall-baseline", "baseline.txt", *workers]
        written = run_tests(folder, *options)
        assert written.section[-2:] == ["baseline.txt: 1 new: it was updated", f"  new: {TEST}"]
        header, line = (folder / "baseline.txt").read_text().splitlines()
        assert header.startswith("# unstall baseline: virtual h200, torch 2.")
        assert line == f"launches=1 syncs=0 reserved=2MiB  {TEST}"

        write(folder, "x.sum().item()")
        ran = run_tests(folder, *options, "--fail-on-increase")
        assert ran.outcomes == {TEST: "FAILED"}
        told = ran.told("test_gpu")
        assert "more than baseline.txt says: launches 1 -> 3, syncs 0 -> 1. It waits here:" in told
        assert "  1x test_gpu.py:6: x.sum().item()" in told
        assert (folder / "baseline.txt").read_text().splitlines() == [header, line]


@pytest.mark.slow
def test_figures_are_the_same_in_any_order(tmp_path: Path) -> None:
    names = ("first", "second", "third")
    sizes = dict(zip(names, (30, 2, 60), strict=True))
    for order in (names, names[::-1]):
        tests = "".join(
            f"def test_{name}():\n    x = torch.ones({sizes[name]} << 18, device='cuda')\n    x @ x\n" for name in order
        )
        (tmp_path / "test_order.py").write_text(f"import torch\n{tests}")
        run_tests(tmp_path, "--unstall-gpu", "h200", "--unstall-baseline", f"{order[0]}.txt")
    assert (tmp_path / "first.txt").read_text() == (tmp_path / "third.txt").read_text()
    assert len((tmp_path / "first.txt").read_text().splitlines()) == 4
