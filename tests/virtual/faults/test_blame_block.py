"""`with unstall.blame()` on the virtual GPU: a note names the line whose work failed, not the one with the error."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")


def notes_of(tmp_path: Path, body: str) -> list[str]:
    """Runs `body` within a block of `blame()` on a virtual H200, and returns the lines that the program printed."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, unstall\n"
        "blaming = unstall.blame()\n"
        "try:\n"
        "    with blaming:\n"
        f"{textwrap.indent(textwrap.dedent(body).strip(), ' ' * 8)}\n"
        "except RuntimeError as error:\n"
        "    print(*getattr(error, '__notes__', []), sep='\\n')\n"
        "print('fault' if blaming.report.result.error else 'no fault')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "unstall.virtual", "--gpu", "h200", program.name],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_note_names_the_failed_line_and_the_value(tmp_path: Path) -> None:
    note, fault = notes_of(
        tmp_path,
        """
        table = torch.zeros(8, device="cuda")
        picked = table[torch.tensor([1, 9], device="cuda")]
        doubled = picked * 2
        doubled.sum().item()
        """,
    )

    assert note.endswith("program.py:6: indices[0] is 9 at [1]: it must be -8 … 7.")
    assert fault == "fault"


@pytest.mark.slow
def test_a_fault_of_a_backward_pass_is_at_the_call_of_backward(tmp_path: Path) -> None:
    note, _ = notes_of(
        tmp_path,
        """
        table = torch.randn(6, 4, device="cuda", requires_grad=True)
        index = torch.zeros(6, 1, dtype=torch.long, device="cuda")
        loss = table.gather(1, index).sum()
        index.data.fill_(7)
        loss.backward()
        torch.cuda.synchronize()
        """,
    )

    assert "program.py:9" in note


@pytest.mark.slow
def test_an_error_that_is_no_fault_gets_no_note(tmp_path: Path) -> None:
    assert notes_of(tmp_path, "raise RuntimeError('another')") == ["", "no fault"]
