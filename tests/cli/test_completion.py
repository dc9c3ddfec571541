"""Shell completion, tried in the shells that are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cli.command import Cli


def _bash_completes(script: str, words: str) -> list[str]:
    lines = [
        script,
        f"COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))",
        '_unstall; printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("unstall ex", ["explain"]),
        ("unstall be", ["bench"]),
        ("unstall bench x --by w", ["wall"]),
        ("unstall do", ["doctor"]),
        ("unstall explain --max", ["--max-idle", "--max-exposed"]),
        ("unstall report --format m", ["markdown"]),
        ("unstall completion z", ["zsh"]),
        ("unstall explain trace", []),
    ],
)
def test_bash_completes(unstall: Cli, words: str, completed: list[str]) -> None:
    assert _bash_completes(unstall("completion", "bash").out, words) == completed


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_a_script_names_every_verb_and_option(unstall: Cli, shell: str) -> None:
    script = unstall("completion", shell).out
    for word in ("explain", "report", "doctor", "completion", "max-idle", "scrub-paths", "markdown"):
        assert word in script


@pytest.mark.parametrize("shell", [*filter(shutil.which, ["bash", "fish", "zsh"])])
def test_a_script_is_valid_in_its_shell(unstall: Cli, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(unstall("completion", shell).out)
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_usage(unstall: Cli) -> None:
    assert unstall("completion", "tcsh").code == 2
