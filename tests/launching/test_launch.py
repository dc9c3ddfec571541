"""A launched program is the program that plain Python would run: nothing it can see differs, and it ends the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from launching.launched import Done, both, launcher, python, write_program

import unstall
from unstall.launching.children import armed
from unstall.launching.launch import Exit, interpreter_flags, launch
from unstall.recording.journal import read
from unstall.recording.settings import Settings

_PROBE = """
import sys
modules = sorted(sys.modules)
import json, os, signal
from pathlib import Path
print(json.dumps({
    "argv": sys.argv,
    "arguments": sys.orig_argv[1:],
    "name": __name__,
    "file": __file__,
    "package": __package__,
    "spec": getattr(__spec__, "name", None),
    "executable": sys.executable,
    "path": sys.path,
    "cached": sorted(path for path in sys.path_importer_cache if "_bootstrap" in path),
    "flags": list(sys.flags),
    "options": [sys.warnoptions, sys._xoptions, sys.stdout.write_through],
    "environment": dict(os.environ),
    "cwd": os.getcwd(),
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "files": sorted(os.listdir("/proc/self/fd")),
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "modules": modules,
}))
"""


@pytest.mark.parametrize(
    ("files", "program"),
    [
        (["train.py"], ["train.py", "--epochs", "1", "", "a b", "--", "-m"]),
        (["deep/train.py"], ["./deep/train.py"]),
        (["train.py"], ["-m", "train", "-x"]),
        (["app/__main__.py"], ["app"]),
        (["app/__init__.py", "app/__main__.py"], ["-m", "app", "run"]),
        (["app/__init__.py", "app/train.py"], ["-m", "app.train"]),
    ],
)
@pytest.mark.parametrize("environment", [{}, {"PYTHONPATH": "one:/two"}, {"PYTHONPATH": ""}])
def test_a_program_sees_what_it_would_see_under_plain_python(
    tmp_path: Path, folder: Path, files: list[str], program: list[str], environment: dict[str, str]
) -> None:
    for name in files:
        write_program(tmp_path, "" if name.endswith("__init__.py") else _PROBE, name)
    plain = json.loads(Done.of([*python(), *program], tmp_path, env=environment).out)
    launched = json.loads(Done.of([*launcher(folder), *program], tmp_path, env=environment).out)

    extra = set(launched.pop("modules")) - set(plain.pop("modules"))
    assert launched == plain
    assert {name.partition(".")[0] for name in extra} <= {*sys.stdlib_module_names, "unstall"}
    assert "unstall.recording.child" in extra


@pytest.mark.parametrize("flags", [["-u"], ["-OB", "-X", "dev"], ["-Wignore", "-W", "error::UserWarning", "-P", "-s"]])
def test_flags_of_the_interpreter_are_kept(tmp_path: Path, folder: Path, flags: list[str]) -> None:
    write_program(tmp_path, _PROBE)
    plain = json.loads(Done.of([*python(*flags), "program.py"], tmp_path).out)
    launched = json.loads(Done.of([*launcher(folder, *flags), "program.py"], tmp_path).out)
    del plain["modules"], launched["modules"]
    assert launched == plain


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('what went wrong')", 1),
        ("def step():\n    raise ValueError('no batch')\nstep()", 1),
        ("syntax error", 1),
        ("import atexit; atexit.register(print, 'the end'); print('work')", 0),
        ("import os; print('lost'); os._exit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
        ("import faulthandler; faulthandler._sigsegv()", -11),
        ("raise KeyboardInterrupt", -2),
        ("import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import sys; sys.exit(5)'])", 5),
    ],
)
def test_a_program_ends_as_it_would_under_plain_python(tmp_path: Path, folder: Path, source: str, code: int) -> None:
    plain, launched = both(tmp_path, folder, source)
    assert plain.code == code
    assert launched == plain
    assert len([event for event in read(folder) if event["event"] == "armed"]) == 1


_RAISES = """
import torch

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, number):
        raise ValueError("a bad sample")

for batch in torch.utils.data.DataLoader(Data()):
    pass
"""


@pytest.mark.skipif(find_spec("unstall.guest._after") is None, reason="the extension is not built here")
def test_what_a_data_set_raises_has_the_traceback_that_it_has_under_plain_python(tmp_path: Path, folder: Path) -> None:
    plain, launched = both(tmp_path, folder, _RAISES)
    assert "a bad sample" in plain.err
    assert launched == plain


def test_a_script_that_is_not_there_ends_as_under_plain_python(tmp_path: Path, folder: Path) -> None:
    for program in (["-m", "no_such_module"], ["."]):
        plain = Done.of([*python(), *program], tmp_path)
        assert plain.code == 1
        assert Done.of([*launcher(folder), *program], tmp_path) == plain


def test_a_program_reads_stdin(tmp_path: Path, folder: Path) -> None:
    plain, launched = both(tmp_path, folder, "print(sum(map(int, open(0))))", stdin="3\n4\n")
    assert plain.out == "7\n"
    assert launched == plain


def test_a_program_keeps_the_files_that_it_was_handed(tmp_path: Path, folder: Path) -> None:
    write_program(tmp_path, "import os, sys; print(os.read(int(sys.argv[1]), 9))")
    read_end, write_end = os.pipe()
    os.write(write_end, b"handed")
    command = [*launcher(folder), "program.py", str(read_end)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, pass_fds=[read_end], text=True)
    os.close(read_end)
    os.close(write_end)
    assert done.stdout == "b'handed'\n"


def test_what_a_program_starts_is_plain(tmp_path: Path, folder: Path) -> None:
    plain, launched = both(
        tmp_path,
        folder,
        """
        import multiprocessing, os, subprocess, sys

        def look(_):
            theirs = [name for name in os.environ if name.startswith("UNSTALL")]
            loaded = [name for name in sys.modules if name.startswith(("unstall", "sitecustomize"))]
            return theirs, os.environ.get("PYTHONPATH"), [] if os.getenv("FORKED") else loaded

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(look, [0, 1]))
            code = "import os, sys; print(sorted(sys.modules), sorted(os.environ.items()), sys.path)"
            print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True))
            os.environ["FORKED"] = "1"
            with multiprocessing.get_context("fork").Pool(1) as pool:
                print(pool.map(look, [0, 1]))
        """,
    )
    assert plain.out.count("([], None, [])") == 4
    assert launched == plain
    assert [event["event"] for event in read(folder)].count("armed") == 1


@pytest.mark.parametrize(
    "source", ["print('at startup')\nimport sys\nsys.ours = 1", "raise ValueError('broken')", "import nothing_there"]
)
def test_a_sitecustomize_that_ours_hides_runs(tmp_path: Path, folder: Path, source: str) -> None:
    site = write_program(tmp_path, source, "site/sitecustomize.py").parent
    program = "import sys; print(sys.modules.get('sitecustomize'), getattr(sys, 'ours', None))"
    environment = {"PYTHONPATH": str(site)}
    plain, launched = both(tmp_path, folder, program, env=environment)
    launchers_own = Done.of(python("-c", ""), tmp_path, env=environment)
    assert launchers_own.out + launchers_own.err
    assert (launched.out, launched.err) == (launchers_own.out + plain.out, launchers_own.err + plain.err)
    assert [event["event"] for event in read(folder)].count("armed") == 1


@pytest.mark.parametrize(
    ("words", "named"), [(["./train.py", "--token", "x"], "./train.py"), (["-m", "train", "--token", "x"], "-m train")]
)
def test_the_journal_names_the_program_without_its_arguments(
    tmp_path: Path, folder: Path, words: list[str], named: str
) -> None:
    write_program(tmp_path, "", "train.py")
    assert Done.of([*launcher(folder, "-u"), *words], tmp_path).code == 0
    assert [event["program"] for event in read(folder) if event["event"] == "armed"] == [named]


def test_a_programs_own_module_is_not_mistaken_for_one_that_we_imported(tmp_path: Path, folder: Path) -> None:
    write_program(tmp_path, "speed = 9", "dataclasses.py")
    write_program(tmp_path, "speed = 8", "json/__init__.py")
    write_program(tmp_path, "speed = 7", "typing/not_a_package.py")
    source = "import dataclasses, json, typing\nprint(dataclasses.speed, json.speed, typing.__file__)"
    script = write_program(tmp_path, source, "train.py")
    linked = tmp_path / "scripts" / "train.py"
    linked.parent.mkdir()
    linked.symlink_to(script)
    for program in (script, linked):
        plain = Done.of([*python(), str(program)], folder)
        assert plain.out.startswith("9 8 ")
        assert Done.of([*launcher(folder), str(program)], folder) == plain


def test_a_recording_that_cannot_be_armed_leaves_the_program_alone(tmp_path: Path, folder: Path) -> None:
    folder.rmdir()
    _, launched = both(tmp_path, folder, "import sys; print('work'); sys.exit(6)")
    assert (launched.code, launched.out) == (6, "work\n")


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_flags_under_which_nothing_can_be_armed_are_refused(tmp_path: Path, folder: Path, flag: str) -> None:
    program = write_program(tmp_path, "print('ran')")
    done = Done.of([*launcher(folder, flag), str(program)], tmp_path)
    assert done.out == ""
    assert done.err.splitlines()[-1] == (
        "unstall.errors.UsageError: a program cannot be recorded under python's -I, -E or -S: leave that flag out"
    )


def test_a_failure_to_tell_how_far_it_is_leaves_the_program_alone(folder: Path) -> None:
    told = []

    def fail() -> None:
        told.append(1)
        raise OSError("the terminal is gone")

    program = ["-c", "import time; time.sleep(0.3); raise SystemExit(4)"]
    assert launch(program, "unstall.recording.child", Settings(str(folder)).to_json(), meanwhile=fail) == Exit(4)
    assert told


def test_stdout_can_be_kept_clean(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    launch(
        ["-c", "import sys; print('to stdout'); print('to stderr', file=sys.stderr)"],
        "unstall.recording.child",
        Settings(str(folder)).to_json(),
    )
    program = ["-c", "print('the program')"]
    launch(program, "unstall.recording.child", Settings(str(folder)).to_json(), stdout_to_stderr=True)
    assert capfd.readouterr() == ("to stdout\n", "to stderr\nthe program\n")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("python -m unstall run train.py -u", ""),
        ("python /bin/unstall run -m train", ""),
        ("python -u -B -m unstall run train.py", "-u -B"),
        ("python -um unstall run train.py", "-u"),
        ("python -munstall run", ""),
        ("python -X dev -Wignore -W error -Ximporttime -m unstall", "-X dev -Wignore -W error -Ximporttime"),
        ("python -uX dev -bb unstall -O", "-uX dev -bb"),
        ("python --check-hash-based-pycs never -s unstall", "--check-hash-based-pycs never -s"),
        ("python -", ""),
        ("python", ""),
    ],
)
def test_flags_are_told_from_what_follows_them(command: str, flags: str) -> None:
    assert interpreter_flags(command.split()) == flags.split()


@pytest.mark.parametrize(
    ("variable", "module"),
    [("UNSTALL_ARM", "unstall.recording.child"), ("UNSTALL_ARM_ALL", "unstall.virtual.child")],
)
def test_ctrl_c_before_the_programs_first_line_ends_it_quietly(variable: str, module: str) -> None:
    program = f"""
import sys
from importlib import import_module
child = import_module("{module}")
def arm(*_):
    raise KeyboardInterrupt
child.arm = arm
sys.path.insert(0, {str(Path(unstall.__file__).parent / "launching" / "_bootstrap")!r})
sys.modules.pop("sitecustomize", None)
import sitecustomize
"""
    environment = {**os.environ, variable: module, "UNSTALL_SETTINGS": "", "UNSTALL_SUPERVISOR": str(os.getpid())}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_the_bootstrap_stands_before_the_path_that_there_is() -> None:
    def environment(before: dict[str, str]) -> dict[str, str]:
        return armed(before, "a.module", "its settings", "")

    assert "UNSTALL_PYTHONPATH" not in environment({})
    assert os.pathsep not in environment({"PYTHONPATH": ""})["PYTHONPATH"]
    found = environment({"PYTHONPATH": "a:b", "HOME": "/h"})
    bootstrap, *rest = found["PYTHONPATH"].split(":")
    assert Path(bootstrap, "sitecustomize.py").is_file()
    assert rest == ["a", "b"]
    assert found["UNSTALL_PYTHONPATH"] == "a:b"
    assert (found["UNSTALL_ARM"], found["UNSTALL_SETTINGS"]) == ("a.module", "its settings")
    assert environment(found)["PYTHONPATH"] == found["PYTHONPATH"]
