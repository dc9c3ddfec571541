"""`unstall run`: what is the program's and what is unstall's, where the trace goes, and what is said of a recording."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.command import Cli, Outcome

from unstall.cli._recording import Teller, failure, how_it_failed, lacks_gpu, why_nothing
from unstall.cli._trace import trace_target
from unstall.guest.device import has_driver
from unstall.guest.ranks import rank_of
from unstall.launching.launch import Exit
from unstall.recording.journal import Follower, Journal, read
from unstall.recording.settings import Settings

_NO_TORCH = "nothing was recorded: the program did not import torch"
_FAILED = "nothing was recorded: the program ended before it had imported torch"


def _run(folder: Path, *args: str, **environment: str) -> Outcome:
    """`unstall run ARGS…` in a folder, as a process of its own; temporary files go to a folder `kept` there."""
    kept = folder / "kept"
    kept.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "unstall", "run", *args],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(kept), **environment},
        capture_output=True,
        text=True,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("args", "argv"),
    [
        (["--steps", "3", "show.py", "--steps", "9", "-o", "x"], ["--steps", "9", "-o", "x"]),
        (["-q", "show.py", "-q", "--", "-m", "--json"], ["-q", "--", "-m", "--json"]),
        (["--", "show.py", "--", "a"], ["--", "a"]),
        (["--warmup", "0", "-m", "show", "-m", "--warmup", "x", "--", "y"], ["-m", "--warmup", "x", "--", "y"]),
        (["show.py", "--help", "--version"], ["--help", "--version"]),
        (["--after=0.5", "--for=2", "--lines=none", "--recorder=torch", "--shapes", "show.py", ""], [""]),
    ],
)
def test_what_follows_the_script_is_the_programs(tmp_path: Path, args: list[str], argv: list[str]) -> None:
    (tmp_path / "show.py").write_text("import sys; print(sys.argv[1:])")
    assert _run(tmp_path, *args).out == f"{argv}\n"


def test_modules_beside_the_program_are_not_taken_for_those_that_we_import(tmp_path: Path) -> None:
    for name in ("json", "resource", "shutil", "tempfile", "traceback"):
        (tmp_path / f"{name}.py").write_text("print('imported')")
    (tmp_path / "train.py").write_text("print('lost')")
    assert _run(tmp_path, "train.py") == Outcome(0, "lost\n", f"unstall: {_NO_TORCH}\n")


def test_a_program_without_torch_is_told_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('lost')")
    assert _run(tmp_path, "train.py") == Outcome(0, "lost\n", f"unstall: {_NO_TORCH}\n")
    assert list((tmp_path / "kept").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "train.py"]


def test_a_script_whose_name_begins_with_a_dash_is_no_option_of_python(tmp_path: Path) -> None:
    (tmp_path / "-c.py").write_text("import sys; print(sys.argv)")
    assert _run(tmp_path, "--", "-c.py", "-x").out == "['./-c.py', '-x']\n"


def test_a_program_that_ends_during_warmup_is_told_how_many_steps_it_took(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import unstall\nunstall.step()\nunstall.step()")
    said = "the program ended after 2 steps, before the 3 of --warmup were over: try --warmup 0"
    assert _run(tmp_path, "train.py") == Outcome(0, "", f"unstall: nothing was recorded: {said}\n")


@pytest.mark.parametrize("number", [2, 9, 11, 15])
def test_a_signal_that_killed_the_program_kills_us(tmp_path: Path, number: int) -> None:
    (tmp_path / "train.py").write_text(f"import os, signal\nsignal.signal({number}, signal.SIG_DFL)\n" * (number != 9))
    with (tmp_path / "train.py").open("a") as file:
        file.write(f"import os; os.kill(os.getpid(), {number})")
    outcome = _run(tmp_path, "train.py")
    assert outcome.code == -number
    assert outcome.err.startswith("unstall: nothing was recorded: ")


def test_a_traceback_is_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def step():\n    raise ValueError('no batch')\nstep()\n")
    plain = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    outcome = _run(tmp_path, "train.py")
    assert (outcome.code, outcome.err) == (1, f"{plain.stderr}unstall: {_FAILED}\n")


def test_json_has_stdout_to_itself(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('epoch 1')")
    outcome = _run(tmp_path, "--json", "train.py")
    assert (outcome.out, outcome.err.splitlines()[0]) == ("", "epoch 1")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "say which program to run: unstall run SCRIPT, or unstall run -m MODULE"),
        (["-m"], "say which program to run: unstall run SCRIPT, or unstall run -m MODULE"),
        (
            ["--gpu", "train.py"],
            "say which program to run: unstall run SCRIPT, or unstall run -m MODULE; --gpu took train.py as its name",
        ),
        (["gone.py", "-x"], "gone.py: there is no such script"),
        (
            ["env", "train.py"],
            "env is a command, and no script of Python: where it starts Python, say `python -m unstall run SCRIPT` for "
            "`python SCRIPT`",
        ),
        (["trian.py"], "trian.py: there is no such script; did you mean train.py?"),
        (["gone/train.py"], "gone/train.py: there is no such script, nor the folder gone"),
        (
            ["package.train"],
            "package.train: there is no such script; a module is run by -m: unstall run -m package.train",
        ),
        (
            ["--steps", "6", "python", "train.py", "--lr", "1"],
            "python is left out, since unstall starts it: `unstall run --steps 6 train.py --lr 1`",
        ),
        (["python3", "-u", "train.py"], "Python comes first: `python3 -u -m unstall run train.py`"),
        (
            ["--gpu", "h200", "torchrun", "--nproc-per-node", "2", "train.py", "--lr", "1"],
            "torchrun comes first, so that each of its processes is recorded: `torchrun --nproc-per-node 2 -m "
            "unstall run --gpu h200:2 train.py --lr 1`",
        ),
        (
            ["torchrun", "--standalone", "-m", "package.train"],
            "torchrun comes first, so that each of its processes is recorded: `torchrun --standalone -m unstall "
            "run -m package.train`",
        ),
        (
            ["-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"],
            "torch.distributed.run comes first, so that each of its processes is recorded: `python -m "
            "torch.distributed.run --nproc-per-node=2 -m unstall run train.py`",
        ),
        (
            ["-m", "train.py", "--lr", "1"],
            "-m takes the name of a module, and train.py is a file: `unstall run train.py --lr 1`",
        ),
        (
            ["accelerate", "launch", "train.py"],
            "accelerate comes first, so that each of its processes is recorded: `accelerate launch -m unstall run "
            "train.py`",
        ),
        (["--warmup", "-1", "train.py"], "--warmup: '-1' is not a whole number from 0 on"),
        (["--steps", "0", "train.py"], "--steps: '0' is not a whole number from 1 on"),
        (["--step", "4", "train.py"], "--step: '4' is no name of an annotation: did you mean --steps 4?"),
        (["--after", "soon", "train.py"], "--after: 'soon' is no time: give seconds, such as 2.5"),
        (["--for", "inf", "train.py"], "--for: 'inf' is no time: give seconds, such as 2.5"),
        (["--for", "0", "train.py"], "--for: there is nothing to record in 0 s: give seconds, such as 2.5"),
        (["--for", "1", "--steps", "6", "train.py"], None),
        (
            ["--recorder", "cupti", "--shapes", "train.py"],
            "shapes are recorded by the recorder torch alone: leave out shapes, or the recorder cupti",
        ),
        (
            ["--recorder", "torch", "--lines", "calls", "train.py"],
            "lines by calls need the recorder cupti: take monitoring, settrace or none",
        ),
        (
            ["--recorder", "cupti", "--step", "batch", "train.py"],
            "--step names an annotation, and cupti records none: leave out --recorder cupti",
        ),
        (
            ["--gpu", "h200", "--shapes", "train.py"],
            "--recorder, --lines and --shapes are about a real GPU: leave them out, a virtual one knows all operators "
            "and lines by itself",
        ),
        (["--nothing", "train.py", "--steps"], None),
        (["-o", "report.pdf", "--trace", "x.json", "train.py"], None),
        (
            ["-o", "x.json.gz", "train.py"],
            "x.json.gz: its ending names no format. Use .htm, .html, .json, .md, .txt, or say --format. -o writes the "
            "report. For the trace, say --trace x.json.gz",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_program_starts(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    outcome = unstall("run", *args)
    assert outcome.code == 2
    assert said is None or outcome.err == f"unstall: {said}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize("output", ["--trace", "-o"])
@pytest.mark.parametrize("target", ["train.py", "nowhere/x.json", ".", "/proc/x.json"])
def test_an_output_that_cannot_be_written_is_refused_before_the_program_starts(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    outcome = unstall("run", "--format", "json", output, target, "train.py")
    assert outcome.code == 2
    assert outcome.err.startswith(f"unstall: {target}: cannot be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_trace_replaces_no_file_that_is_none_by_its_name(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    (tmp_path / "model.py").write_text("weeks of work")
    outcome = unstall("run", "--trace", "model.py", "train.py")
    assert outcome.code == 2
    assert outcome.err.startswith("unstall: model.py: cannot be written: it is there, and by its name no trace ")
    assert (tmp_path / "model.py").read_text() == "weeks of work"
    assert not (tmp_path / "ran").exists()


def test_an_earlier_run_that_is_not_there_is_refused_before_the_program_starts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    done = _run(tmp_path, "--against", "before.json.gz", "train.py")
    assert (done.code, done.out) == (2, "")
    assert "--against before.json.gz: cannot be read: No such file or directory" in done.err


def test_the_earlier_run_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    (tmp_path / "before.json.gz").write_bytes(b"an earlier trace")
    done = _run(tmp_path, "--against", "before.json.gz", "--trace", "before.json.gz", "train.py")
    assert (done.code, done.out) == (2, "")
    assert (tmp_path / "before.json.gz").read_bytes() == b"an earlier trace"


def test_a_trace_is_not_put_at_the_name_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('lost')")
    said = "unstall: --trace: traces/ is a folder: name a file in it\n"
    assert _run(tmp_path, "--trace", "traces/", "train.py") == Outcome(2, "", said)


@pytest.mark.parametrize("name", ["old.json", "old.trace.json.gz", "empty", "new"])
def test_a_trace_may_replace_another_and_what_is_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text("")
    if name != "new":
        (tmp_path / name).write_text("[]" * name.startswith("old"))
    assert _run(tmp_path, "--trace", name, "train.py").code == 0


@pytest.mark.skipif(has_driver(), reason="CUPTI may work here")
@pytest.mark.parametrize("asked", ["--recorder cupti", "--lines calls"])
def test_cupti_is_refused_before_the_program_starts_where_it_cannot_work(tmp_path: Path, asked: str) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    outcome = _run(tmp_path, *asked.split(), "train.py", "-x")
    assert (outcome.code, (tmp_path / "ran").exists()) == (2, False)
    assert outcome.err.startswith(f"unstall: {asked}: ")
    assert outcome.err.endswith(". On a virtual GPU: `unstall run --gpu h200 train.py -x`\n")


def test_a_trace_never_takes_the_name_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for rank in (None, None, None, 1, 1):
        target = trace_target(None, "train", rank)
        likely = target.likely()
        assert target.publish(lambda path: path.write_text("a trace")) == likely
        names.append(likely.name)
    assert names == [
        "train.trace.json.gz",
        "train-2.trace.json.gz",
        "train-3.trace.json.gz",
        "train-rank1.trace.json.gz",
        "train-rank1-2.trace.json.gz",
    ]


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, 3),
        ({"LOCAL_RANK": "1"}, 1),
        ({"RANK": "0", "WORLD_SIZE": "2"}, 0),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "first"}, None),
    ],
)
def test_the_rank_is_what_torchrun_says(environment: dict[str, str], rank: int | None) -> None:
    assert rank_of(environment) == rank


def test_each_of_several_ranks_says_which_one_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    outcome = _run(tmp_path, "train.py", RANK="1", WORLD_SIZE="2")
    assert outcome.err == f"unstall: rank 1: {_NO_TORCH}\n"


@pytest.mark.parametrize("gpu", [[], ["--gpu", "h200:2"]])
@pytest.mark.parametrize("length", [["--after", "1"], ["--for", "1"]])
def test_ranks_end_together_and_so_not_after_seconds(tmp_path: Path, gpu: list[str], length: list[str]) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    outcome = _run(tmp_path, *gpu, "--stop", *length, "train.py", RANK="1", WORLD_SIZE="2")
    assert (outcome.code, (tmp_path / "ran").exists()) == (2, False)
    assert "--stop ends all ranks after the same step, but --after and --for are seconds" in outcome.err


_IDLE_LATER = """\
from pathlib import Path
from recording.folders import Folder
from unstall.guest import active

folder = Path(active.current()._journal._path).parent
later = Folder(folder)
later.window(20_000)
later.write()
(folder / "{name}").mkdir()
began = Folder(folder / "{name}")
began.armed()
began.window(1_000)
began.kernel("gemm", 5_000, 8_000, began.call("cuLaunchKernel", 3_000, 4_000))
began.write()
"""


@pytest.mark.parametrize(("name", "by"), [("first", ""), ("before", ", recorded with cupti")])
def test_a_recording_of_an_idle_device_gives_way_to_that_of_how_the_program_began(
    tmp_path: Path, name: str, by: str
) -> None:
    pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)
    (tmp_path / "train.py").write_text(_IDLE_LATER.format(name=name))
    outcome = _run(tmp_path, "-o", "report.json", "train.py", PYTHONPATH=str(Path(__file__).parents[1]))
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["source"]["device_ops"] == 1
    said = f"This is how the program began{by}, since nothing ran on the device later, during the recording. "
    assert report["verdict"]["text"].startswith(said)
    assert (outcome.code, list((tmp_path / "kept").iterdir())) == (0, [])


@pytest.fixture
def recording(tmp_path: Path) -> Settings:
    """The settings of a recording whose journal a test writes."""
    return Settings(folder=str(tmp_path))


def _happened(recording: Settings, *events: tuple[str, dict[str, object]]) -> None:
    journal = Journal(recording.folder)
    for name, fields in events:
        journal.write(name, **fields)  # type: ignore[arg-type]
    journal.close()


def test_how_a_recording_gets_on_is_said_once_and_in_few_lines(
    recording: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstall.cli._recording.has_gpu", lambda: True)
    teller = Teller(Follower(recording.folder), quiet=False)
    teller.tell()
    _happened(recording, ("armed", {}), ("window", {"recorder": "cupti"}), ("mark", {}))
    teller.tell()
    _happened(recording, ("recorded", {"steps": 5, "by": "optimizer"}))
    teller.tell()
    teller.tell(running=False)
    assert capsys.readouterr().err == (
        "unstall: recording with cupti\nunstall: recorded 5 steps; the program goes on\n"
    )


def test_without_a_gpu_that_is_said_as_recording_begins(
    recording: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstall.cli._recording.has_gpu", lambda: False)
    _happened(recording, ("armed", {}), ("window", {"recorder": "torch"}))
    Teller(Follower(recording.folder), quiet=False).tell()
    assert capsys.readouterr().err == (
        "unstall: recording with torch; no NVIDIA or AMD GPU is here, so there will be little to explain\n"
    )


@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
@pytest.mark.parametrize(
    ("over", "succeeded", "lacks"),
    [
        ({"torch": True, "failed_for_cuda": False}, True, True),
        ({"torch": False, "failed_for_cuda": False}, True, False),
        ({"torch": True, "failed_for_cuda": True}, False, True),
        ({"torch": True, "failed_for_cuda": False}, False, False),
        ({}, True, False),
    ],
)
def test_a_gpu_is_what_lacks_where_torch_went_without_one_or_failed_for_it(
    recording: Settings, over: dict[str, object], succeeded: bool, lacks: bool
) -> None:
    _happened(recording, ("armed", {}), ("over", over))
    assert lacks_gpu(read(recording.folder), succeeded=succeeded) == lacks


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], []),
        (["-o", "a.html", "-o", "b.json"], ["unstall: so there is no report in a.html, b.json"]),
        (["--json"], ["unstall: so there is no report"]),
    ],
)
def test_a_report_that_was_asked_for_and_cannot_be_is_missed(tmp_path: Path, asked: list[str], said: list[str]) -> None:
    (tmp_path / "train.py").write_text("print('lost')")
    done = _run(tmp_path, *asked, "train.py")
    told = [line for line in done.err.splitlines() if line != "lost"]
    assert told == [f"unstall: {_NO_TORCH}", *said]
    assert not list(tmp_path.glob("*.html"))


_FOR_WANT_OF_CUDA = """\
import sys
sys.modules["torch"] = sys
raise RuntimeError("No CUDA GPUs are available")
"""


@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
def test_a_program_that_fails_for_want_of_cuda_is_told_the_whole_command_that_runs_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_FOR_WANT_OF_CUDA)
    said = _run(tmp_path, "--recorder", "torch", "--lines=none", "--top", "3", "train.py", "--name", "a b").err
    command = "unstall run --gpu h200 --top 3 train.py --name 'a b'"
    assert [line for line in said.splitlines() if line.startswith("unstall: ")] == [
        f"unstall: nothing was recorded: no GPU is here; `{command}` runs it on a virtual one"
    ]


@pytest.mark.parametrize("program", ["import nothing", "raise KeyboardInterrupt", "import sys; sys.exit(2)"])
def test_no_gpu_is_offered_for_what_has_nothing_to_do_with_one(tmp_path: Path, program: str) -> None:
    (tmp_path / "train.py").write_text(f"import sys\nsys.modules['torch'] = sys\n{program}")
    assert "--gpu" not in _run(tmp_path, "train.py").err


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (
            ["train.py", "--gpu", "h200", "--steps=3", "--lr", "1"],
            2,
            "the program was given --gpu, --steps: options that are meant for unstall ",
        ),
        (["train.py", "--gpu", "h200"], 0, None),
        (["train.py", "--lr", "1"], 2, None),
        (["-q", "train.py", "--gpu", "h200"], 2, None),
    ],
)
def test_a_program_that_knows_no_option_of_ours_is_said_to_have_got_it(
    tmp_path: Path, args: list[str], code: int, said: str | None
) -> None:
    (tmp_path / "train.py").write_text(f"import sys; sys.exit({code})")
    outcome = _run(tmp_path, *args)
    assert outcome.code == code
    assert (said or "") in outcome.err
    assert ("meant for unstall" in outcome.err) == (said is not None)


@pytest.mark.parametrize(
    ("fields", "amount"),
    [
        ({"steps": 1, "by": "loader"}, "1 step"),
        ({"steps": 0, "by": "forward"}, "less than a step"),
        ({"steps": 0, "by": "time", "at": 2_500_000_100}, "2.50 s"),
    ],
)
def test_what_was_recorded_at_the_programs_end_is_said_without_a_sequel(
    recording: Settings, capsys: pytest.CaptureFixture[str], fields: dict[str, object], amount: str
) -> None:
    _happened(recording, ("window", {"recorder": "cupti", "at": 100}), ("recorded", fields))
    Teller(Follower(recording.folder), quiet=False).tell(running=False)
    assert capsys.readouterr().err == f"unstall: recorded {amount}\n"


def test_a_program_whose_end_cut_the_window_short_is_not_said_to_go_on(
    recording: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    _happened(recording, ("recorded", {"steps": 3, "by": "optimizer", "why": "exit"}))
    Teller(Follower(recording.folder), quiet=False).tell()
    assert capsys.readouterr().err == "unstall: recorded 3 steps\n"


def test_a_quiet_recording_says_nothing(recording: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    _happened(recording, ("window", {"recorder": "cupti"}), ("failed", {"why": "the disk is full"}))
    Teller(Follower(recording.folder), quiet=True).tell()
    assert capsys.readouterr().err == ""


def _over(phase: str, steps: int) -> tuple[str, dict[str, object]]:
    return "over", {"why": "exit", "phase": phase, "steps": steps}


@pytest.mark.parametrize(
    ("succeeded", "said"),
    [
        (True, "the program took no steps that unstall sees, which are "),
        (False, "the program ended before any step that unstall sees, which are "),
    ],
)
def test_a_program_without_steps_is_told_what_steps_are(recording: Settings, succeeded: bool, said: str) -> None:
    _happened(recording, ("armed", {}), ("over", {"phase": "warmup", "steps": 0, "torch": True}))
    why = why_nothing(read(recording.folder), recording, succeeded=succeeded)
    assert why is not None
    assert why.startswith(said)
    assert why.endswith(": call unstall.step() at the end of each step")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "Python did not load unstall's sitecustomize as it started"),
        ([("armed", {})], "the program was killed, or left by os._exit or exec, before the recording began"),
        ([("armed", {}), ("failed", {"why": "libcupti was not found"})], "libcupti was not found"),
        ([("armed", {}), ("waiting", {"why": "torch.profiler is on"}), _over("warmup", 9)], "torch.profiler is on"),
        ([("armed", {}), _over("warmup", 1)], "the program ended after 1 step, before the 3 of --warmup were over: "),
        ([("armed", {}), _over("plain_before", 7)], "the program ended after 7 steps, while steps were still timed "),
    ],
)
def test_why_nothing_was_recorded(recording: Settings, events: list[tuple[str, dict[str, object]]], why: str) -> None:
    _happened(recording, *events)
    said = why_nothing(read(recording.folder), recording, succeeded=True)
    assert said is not None
    assert said.startswith(why)


@pytest.mark.parametrize("asked", [{"recorder": "torch"}, {"recorder": "torch", "after_s": 1}, {"shapes": True}])
@pytest.mark.parametrize("succeeded", [True, False])
def test_a_program_without_steps_is_told_that_recorder_torch_needs_one(
    tmp_path: Path, asked: dict[str, Any], succeeded: bool
) -> None:
    recording = Settings(folder=str(tmp_path), **asked)
    _happened(recording, ("armed", {}), _over("warmup", 0))
    why = why_nothing(read(tmp_path), recording, succeeded=succeeded)
    assert why is not None
    assert why.startswith("recorder torch begins only at a step, and the program ")
    assert why.endswith(": call unstall.step() at the end of each step")


def test_where_seconds_were_asked_for_seconds_are_told(tmp_path: Path) -> None:
    recording = Settings(folder=str(tmp_path), after_s=90)
    _happened(recording, ("armed", {}), _over("warmup", 700))
    assert why_nothing(read(tmp_path), recording, succeeded=True) == (
        "the program ended after 700 steps, before the 90 s of --after were over: try --after 0"
    )


@pytest.mark.parametrize(
    ("cuda", "succeeded", "why"),
    [
        (False, True, "the program did not initialise CUDA, without which seconds (--after, --for) are recorded only "),
        (False, False, "the program ended before it had initialised CUDA, without which seconds "),
        (True, True, "the program ended before the 90 s of --after were over: try --after 0"),
    ],
)
def test_of_a_program_without_steps_too(tmp_path: Path, cuda: bool, succeeded: bool, why: str) -> None:
    recording = Settings(folder=str(tmp_path), after_s=90)
    over = {"why": "exit", "phase": "warmup", "steps": 0, "torch": True, "cuda": cuda}
    _happened(recording, ("armed", {}), ("over", over))
    said = why_nothing(read(tmp_path), recording, succeeded=succeeded)
    assert said is not None
    assert said.startswith(why)


def test_a_window_that_was_cut_short_is_something(recording: Settings) -> None:
    _happened(recording, ("armed", {}), ("window", {}), ("failed", {"why": "the disk is full"}))
    events = read(recording.folder)
    assert why_nothing(events, recording, succeeded=False) is None
    assert failure(events) == "the disk is full"


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Exit(0), None),
        (Exit(1), "the program ended with exit code 1; the report is of what ran before"),
        (Exit(163, 35), "signal 35 ended the program; the report is of what ran before"),
        (Exit(130, 2), "SIGINT ended the program; the report is of what ran before"),
    ],
)
def test_a_report_of_a_program_that_failed_says_so(ended: Exit, said: str | None) -> None:
    assert how_it_failed(ended) == said
