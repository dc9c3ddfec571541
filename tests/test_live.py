"""A live `torch.profiler.profile`: explained in memory, as a handler, twice, too early, too late."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path
from typing import Any

import pytest

import unstall
from unstall.errors import UsageError

torch = pytest.importorskip("torch")

# Some versions of torch warn of their own profiler's ways.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def _work() -> None:
    (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()


def _profiled(**options: Any) -> Any:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profile:
        _work()
    return profile


def test_a_profile_of_the_cpu_has_no_device_to_bind_it() -> None:
    report = unstall.explain(_profiled())
    assert report.verdict.bound_by == "none"
    assert report.result.source.path == "torch.profiler.profile"
    assert report.result.source.host_events > 10
    assert report.result.source.device_ops == 0


def test_stacks_of_a_profile_are_read() -> None:
    assert unstall.explain(_profiled(with_stack=True)).result.source.has_stacks
    assert not unstall.explain(_profiled()).result.source.has_stacks


def test_a_profile_can_be_explained_again_though_torch_exports_it_once() -> None:
    profile = _profiled()
    assert unstall.explain(profile).result == unstall.explain(profile).result


def test_what_if_takes_a_profile_too() -> None:
    with pytest.raises(UsageError, match=r"^torch\.profiler\.profile: no device work"):
        unstall.whatif(_profiled(), "graph")


def test_a_handler_prints_since_its_result_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    _profiled(on_trace_ready=unstall.explain)
    assert "No device work was recorded" in capsys.readouterr().out


def test_a_handler_may_carry_options(capsys: pytest.CaptureFixture[str]) -> None:
    _profiled(on_trace_ready=functools.partial(unstall.explain, user=["*.py"]))
    assert "No device work was recorded" in capsys.readouterr().out


def test_a_call_of_ones_own_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    unstall.explain(_profiled())
    assert capsys.readouterr().out == ""


def test_each_cycle_of_a_schedule_is_its_own_run(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=2)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, schedule=schedule, on_trace_ready=unstall.explain) as profile:
        for _ in range(6):
            _work()
            profile.step()
    assert capsys.readouterr().out.count("No device work was recorded") == 2


def test_a_profile_still_running_is_refused_in_a_sentence() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        _work()
        with pytest.raises(UsageError, match="explain it after its `with` block"):
            unstall.explain(profile)


def test_a_profile_exported_before_is_explained_from_its_file(tmp_path: Path) -> None:
    profile = _profiled()
    path = tmp_path / "trace.json"
    profile.export_chrome_trace(str(path))
    with pytest.raises(UsageError, match="explain that file"):
        unstall.explain(profile)
    assert unstall.explain(path).verdict.bound_by == "none"


class _Exporting:
    """A profile of torch's second profiler, as far as its export goes: it appends ".gz", or does nothing yet."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content

    def export_chrome_trace(self, path: str) -> None:
        if self.content is not None:
            Path(f"{path}.gz").write_bytes(gzip.compress(self.content))


def test_a_profile_that_packs_its_file_is_explained() -> None:
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 3, "tid": 4}'
    report = unstall.explain(_Exporting(b'{"traceEvents": [%b]}' % event))
    assert (report.result.source.path, report.result.source.host_events) == ("torch.profiler.profile", 1)


def test_a_profile_that_exports_later_is_refused_in_a_sentence() -> None:
    with pytest.raises(UsageError, match="torch exported no file for this profile"):
        unstall.explain(_Exporting(None))


def test_what_is_no_profile_is_refused_in_a_sentence() -> None:
    five: Any = 5
    with pytest.raises(UsageError, match="cannot explain what is of type int: give a trace file, a Timeline"):
        unstall.explain(five)


def test_a_report_shows_itself() -> None:
    report = unstall.explain(_profiled())
    assert str(report) == repr(report)
    assert str(report).startswith("torch.profiler.profile\n")
    assert report._repr_html_().startswith("<pre")


def test_a_report_is_saved_in_the_format_of_the_ending(tmp_path: Path) -> None:
    report = unstall.explain(_profiled())
    for name, start in (("r.html", "<!doctype html>"), ("r.md", "### unstall"), ("r.json", "{"), ("r.txt", "torch")):
        report.save(tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
    with pytest.raises(UsageError, match="its ending names no format"):
        report.save(tmp_path / "r.pdf")
