"""The commands at the end of a run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from unstall.cli._ending import in_lines

WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), max_size=30), min_size=1, max_size=12
)


@given(WORDS)
def test_the_lines_of_a_command_are_the_command(words: list[str]) -> None:
    lines = in_lines(shlex.join(["unstall", *words]))
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert shlex.split(" ".join(line.removesuffix(" \\") for line in lines)) == ["unstall", *words]


def test_a_file_to_compare_with_is_read_before_the_program_runs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('runs')\n")
    command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--against", str(program), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"unstall: --against {program}: ")
