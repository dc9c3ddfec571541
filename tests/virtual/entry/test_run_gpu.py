"""`unstall run --gpu`: the program runs as it would, and its run on the virtual GPU is written and explained."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from processes import succeeded
from virtual.entry.running import PROGRAMS, facts, run_gpu

import unstall
from unstall.read import load

slow = pytest.mark.slow
_RUN = ("-m", "unstall", "run")


@slow
def test_a_program_prints_what_it_would_and_its_steps_are_explained(tmp_path: Path) -> None:
    done = run_gpu("training", tmp_path, "-x", "--gpu")
    assert done.returncode == 0
    *losses, last = done.stdout.splitlines()
    assert last == "1 NVIDIA H200 ['-x', '--gpu'] __main__"
    assert [float(loss) for loss in losses] == pytest.approx(_losses_on_the_cpu(), rel=1e-3)
    assert "the trace is in training.trace.json.gz" in done.stderr
    assert unstall.explain(tmp_path / "training.trace.json.gz").result.steps.count == 3  # the first three warm up
    assert "training.py:1" in done.stderr
    timeline = load(tmp_path / "training.trace.json.gz")
    assert timeline.meta.recorder == "virtual"
    launch = timeline.device.launch
    assert (launch[1:] >= 0).all()  # the last kernel of the step before the window may start within it


@slow
def test_a_part_of_the_steps_as_json_with_the_programs_output_beside(tmp_path: Path) -> None:
    done = run_gpu("training", tmp_path, options=["--json", "--warmup", "2", "--steps", "3", "--trace", "part.json"])
    result = json.loads(done.stdout)
    assert result["steps"]["count"] in (2, 3)
    assert "NVIDIA H200" in done.stderr
    assert result["replay"]["undistorted_by"] == "nothing"
    again = [sys.executable, "-m", "unstall", "explain", "part.json", "--json"]
    read = json.loads(subprocess.run(again, capture_output=True, text=True, cwd=tmp_path, check=True).stdout)
    assert (result["source"].pop("reader"), read["source"].pop("reader")) == ("virtual", "kineto")
    assert read == result


@slow
def test_a_run_against_an_earlier_one_ends_with_the_promise_and_the_result(tmp_path: Path) -> None:
    assert run_gpu("reading", tmp_path, options=["--trace", "before.json.gz", "-o", "before.json"]).returncode == 0
    plan = json.loads((tmp_path / "before.json").read_text())["plan"]
    promised = f"promised {plan[-1]['step_ns'] / 1e6:.3f} ms, got "
    same = run_gpu("reading", tmp_path, options=["--against", "before.json.gz"]).stderr.splitlines()
    assert same[-1].startswith(promised)
    told, _, changes = same[-2].partition(": ")
    assert told == "still there, of the plan"
    assert sorted(changes.split(", ")) == ["graph at reading.py:13", "remove-syncs at reading.py:20"]
    # The saved result has the promise, too.
    later = run_gpu("reading", tmp_path, "later", options=["--against", "before.json"]).stderr.splitlines()
    assert later[-1].startswith(promised)
    assert later[-2] == "still there, of the plan: graph at reading.py:13"
    assert float(later[-1].split()[-2]) < float(same[-1].split()[-2])


@slow
def test_the_waits_of_a_stopwatch_are_not_to_be_removed(tmp_path: Path) -> None:
    result = json.loads(run_gpu("timing", tmp_path, options=["--json"]).stdout)
    waits = [finding["where"]["line"] for finding in result["findings"] if finding["rule"].startswith("sync-")]
    assert waits == [12]


@slow
def test_a_run_that_is_told_its_steps_and_the_users_files_tells_them_to_the_verbs_that_read_its_trace(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.py").write_text("def forward(x):\n    return x.relu().sum().item()\n")
    (tmp_path / "train.py").write_text(
        "import torch, model\n"
        "x = torch.ones(1000, device='cuda')\n"
        "for _ in range(6):\n"
        "    with torch.profiler.record_function('batch'):\n"
        "        for _ in range(3):\n"
        "            model.forward(x)\n"
    )
    options = ["--warmup", "2", "--step", "batch", "--user", "train.py", "-o", "told.json", "train.py"]
    succeeded([sys.executable, "-m", "unstall", "run", "--gpu", "h200", *options], cwd=tmp_path)
    again = unstall.explain(tmp_path / "train.trace.json.gz").result
    for result in (json.loads((tmp_path / "told.json").read_text()), json.loads(msgspec.json.encode(again))):
        assert (result["steps"]["name"], result["steps"]["count"]) == ("batch", 4)
        assert {line["where"]["file"] for line in result["lines"]} == {"train.py"}


@slow
def test_a_step_that_no_annotation_has_costs_no_report(tmp_path: Path) -> None:
    done = run_gpu("reading", tmp_path, options=["--step", "batch"])
    assert done.returncode == 0
    assert "unstall: no annotation is called 'batch'; there are: " in done.stderr
    assert "plan: " in done.stderr


@slow
def test_lines_that_an_edit_above_moved_are_the_same_lines(tmp_path: Path) -> None:
    program, runs = tmp_path / "reading.py", ("before.json.gz", "after.json.gz")
    source = (PROGRAMS / "reading.py").read_text()
    for text, trace in zip((source, f"# A comment,\n# and another.\n{source}"), runs, strict=True):
        program.write_text(text)
        command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--trace", trace, "reading.py"]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert b"item()" not in gzip.decompress((tmp_path / runs[0]).read_bytes())  # no text of the source
    result = unstall.diff(*(tmp_path / trace for trace in runs)).result
    assert result.empty
    assert result.unchanged.lines >= 3


@slow
@pytest.mark.parametrize("host", ["modelled", "measured"])
def test_what_sleeps_is_told_with_its_line(tmp_path: Path, host: str) -> None:
    result = json.loads(run_gpu("sleeping", tmp_path, options=["--json", "--host", host]).stdout)
    titles = {finding["title"]: finding["where"] for finding in result["findings"] if finding["rule"] == "python-bound"}
    where = titles["The device waits while the host sleeps, or waits for another process, a connection or a file"]
    assert (where["line"], where["function"]) == (9, "wait")
    assert result["verdict"]["text"].startswith("Held up")


@slow
@pytest.mark.parametrize(
    ("how", "code", "written"),
    [
        ("exit", 7, True),
        ("raise", 1, True),
        ("os._exit", 9, True),
        ("os._exit, Ctrl-C", 9, True),
        ("SIGINT", -signal.SIGINT, True),
        ("SIGKILL", -signal.SIGKILL, False),
    ],
)
def test_it_ends_as_the_program_did(tmp_path: Path, how: str, code: int, written: bool) -> None:
    done = run_gpu("ending", tmp_path, how)
    assert done.returncode == code
    assert (tmp_path / "ending.trace.json.gz").exists() == written
    assert ("nothing is known of the run: SIGKILL ended the program" in done.stderr) == (not written)
    assert done.stderr.endswith("; the report is of what ran before\n") == written


@slow
def test_a_report_says_what_its_times_leave_out(tmp_path: Path) -> None:
    notes = json.loads(run_gpu("compiled", tmp_path, options=["--json"]).stdout)["integrity"]["notes"]
    assert any("computes (NumPy, loops, decoding, DataLoader workers) takes no time" in note for note in notes)
    assert any("torch.compile does not compile for the virtual GPU" in note for note in notes)
    measured = run_gpu("training", tmp_path, options=["--json", "--host", "measured"])
    notes = json.loads(measured.stdout)["integrity"]["notes"]
    assert any("takes as long as it took here" in note for note in notes)
    assert not any("torch.compile" in note for note in notes)


@slow
@pytest.mark.parametrize(
    ("numerics", "said"), [("real", "values are the CPU's; --numerics device"), ("device", "added up as on a GPU")]
)
def test_a_report_says_whose_values_the_program_computed(numerics: str, said: str, tmp_path: Path) -> None:
    done = run_gpu("training", tmp_path, options=["--json", "--numerics", numerics])
    assert any(said in note for note in json.loads(done.stdout)["integrity"]["notes"])


@slow
def test_the_hosts_operators_take_the_same_time_in_every_run_and_what_is_free_is_told(tmp_path: Path) -> None:
    runs = [run_gpu("timed_host", tmp_path, options=["-q"]) for _ in range(2)]
    (operators, products), again = ([int(word) for word in run.stdout.split()] for run in runs)
    assert [operators, products] == again
    assert operators > 1_000_000  # 100 us each
    assert products < 100_000
    told = [line for line in runs[0].stderr.splitlines() if "took no time on the virtual clock" in line]
    assert len(told) == 1
    assert "timed_host.py:18: " in told[0]


@slow
def test_mixed_charges_what_the_model_does_not_know_and_shows_its_scale(tmp_path: Path) -> None:
    done = run_gpu("timed_host", tmp_path, options=["-q", "--host", "mixed"])
    assert int(done.stdout.split()[1]) > 1_000_000
    assert "took no time" not in done.stderr
    explained = run_gpu("timed_host", tmp_path, options=["--json", "--host", "mixed"])
    notes = json.loads(explained.stdout)["integrity"]["notes"]
    assert any(re.search(r"times [\d.]+: the host's scale", note) for note in notes)


@slow
def test_a_window_after_the_end_is_told_how_long_the_program_took(tmp_path: Path) -> None:
    done = run_gpu("training", tmp_path, options=["--after", "100", "--for", "1"])
    assert done.returncode == 0
    assert re.search(
        r"nothing ran in the time that --after and --for ask for: .* the virtual clock, .* took [\d.]+ m?s",
        " ".join(done.stderr.split()),
    )
    assert (tmp_path / "training.trace.json.gz").exists()


@slow
def test_two_devices(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unstall", "run", "-q", "--gpu", "h200:2", str(PROGRAMS / "training.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1].startswith("2 NVIDIA H200")


@slow
def test_children_of_every_kind_have_the_gpu_but_forked_ones(tmp_path: Path) -> None:
    told = json.loads(run_gpu("children", tmp_path, options=["-q"]).stdout.splitlines()[-1])
    assert told["fork"] == told["spawn"] == [6.0, 4.0]  # the sum, and how many of the workers' clocks went well
    assert told["process"] == 2.0
    assert told["python"] == "NVIDIA H200\n"
    assert told["forked"].startswith("Cannot re-initialize CUDA in forked subprocess")


@slow
def test_the_module_runs_a_program_in_its_own_process() -> None:
    command = [sys.executable, "-m", "unstall.virtual", "--explain", str(PROGRAMS / "training.py"), "-y"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "1 NVIDIA H200 ['-y'] __main__"
    assert "3 steps of" in done.stderr  # as of `unstall run`, the first three warm up
    assert "the first 3 (warm-up)" in " ".join(done.stderr.split())
    assert "Start-up:" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpu", "h200:0"], "give a GPU's name, or its name and how many"),
        (["--gpu", ":2"], "give a GPU's name, or its name and how many"),
        (["--gpu", "h200:2,2@0.8"], "after the comma, give a device and its part of the clocks"),
        (["--gpu", "h200:2,1@1.5"], "after the comma, give a device and its part of the clocks"),
        (["--gpu", "h200:2,1@0.8,1@0.7"], "each device once"),
        (["--numerics", "skip"], "--numerics needs --gpu"),
        (["--gpu", "h200", "--recorder", "torch"], "about a real GPU"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "unstall", "run", *options, str(PROGRAMS / "training.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_run_that_a_program_on_a_virtual_gpu_starts_needs_one_too(tmp_path: Path) -> None:
    outer = tmp_path / "outer.py"
    outer.write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, *{_RUN!r}, 'inner.py'])")
    done = subprocess.run(
        [sys.executable, *_RUN, "--gpu", "h200", str(outer)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "unstall: this command runs on a virtual GPU, and so would the program: give --gpu NAME" in done.stderr


def _losses_on_the_cpu() -> list[float]:
    source = (PROGRAMS / "training.py").read_text().replace('"cuda"', '"cpu"').partition("print(torch.cuda")[0]
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines()]


@slow
def test_torch_before_the_virtual_gpu_is_refused() -> None:
    source = "import torch, unstall; unstall.virtual_gpu('h200')"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert "torch was imported before the virtual GPU was there" in done.stderr


@slow
def test_blocks_have_a_timeline_each_and_the_clock_is_the_machines_again_after_them() -> None:
    told = facts("blocks")
    assert told["steps"] == [6, "annotation"]
    assert told["device"][0] == "NVIDIA H200"
    assert told["path"] == "unstall.virtual_gpu()"
    assert told["lasted"][0] == told["lasted"][1] >= told["within"][0] > 20_000_000
    assert told["clock"] is True
    assert told["after"] == 6000.0
    assert told["second"] == 1
    assert told["kernels"] == told["first still"] == told["within"][1]
    assert "this process has a virtual GPU already: h200:1" in told["another"]
    assert "one stretch of time" in told["again"]
    assert "has not begun" in told["before"]
    assert "gives gpu.explain()" in told["recorded"]
    assert told["recorded after"] == told["recorded"]


@slow
def test_a_notebooks_cell_is_explained_by_the_virtual_gpus_own_timeline_within_a_block_and_after_it() -> None:
    pytest.importorskip("IPython")
    told = facts("cells")
    for when in ("within", "after"):
        value, shown, stderr = told[when]
        assert (value, stderr) == ("the value", "")
        assert "simulated for NVIDIA H200" in shown
        assert "\n5 steps of " in shown
    _, shown, stderr = told["with options"]
    assert shown == ""
    assert "--steps: about a recording, and the virtual GPU needs none" in stderr


@slow
def test_the_programs_clock_is_virtual() -> None:
    told = facts("blocks")
    _, _, _, *rounds = told["rounds"]  # the first loads its kernels, which evicts code that the next two run
    assert max(rounds) == pytest.approx(min(rounds), rel=1e-3)  # and no time is the same twice on a real host
    assert 10e-6 < min(rounds) < 200e-6
    assert told["slept"] == pytest.approx(0.02, abs=1e-4)
    on_device, on_host = told["slept on the device"]
    assert on_device == pytest.approx(1e-3, rel=0.2)
    assert on_device < on_host < 2 * on_device
    assert 1e-6 < told["timer"] < 50e-6


def test_nccl_s_own_class_has_its_options() -> None:
    told = facts("nccl_options", "-m", "unstall.virtual")
    assert told == {"has it": [True, True], "high priority": True, "timeout": 600.0, "ctas": 4, "group of one": 3.0}
