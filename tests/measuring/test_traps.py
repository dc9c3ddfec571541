"""Mistakes that benchmarks of GPU code are made with: each gets its verdict, on the virtual GPU and on a real one.

What the virtual GPU's model does not know has no verdict there."""

from __future__ import annotations

import pytest
from measuring.running import facts

VERDICTS = {
    "sync inside": "sync inside",
    "waits itself": "sync inside",
    "side stream": "escapes to another stream",
    "unused": "result unused",
    "allocates": "allocates",
    "asks the driver": "allocates",
    "first call": "first call differs",
    "CPU tensor": "CPU tensor",
    "random clocks": "not converged",
    "changes its input": "input changes",
    "warm L2": "warm L2",
    "later": "works later",
    "stale graph": "stale graph input",
    "zeros": "zeros",
    "subnormals": "denormals",
}
NOT_OF_THE_MODEL = {"warm L2", "zeros", "subnormals"}  # it knows of no caches, and its times of no values
LINES = {
    "sync inside": ("sync inside", "return x / total.item()  # the place of the wait"),
    "waits itself": ("sync inside", "    torch.cuda.synchronize()\n    return z"),
    "side stream": ("escapes to another stream", "        return x @ x\n\n\ndef forks_and_joins"),
    "CPU tensor": ("copies inside", "return x @ w.cuda()"),
    "stale graph": ("stale graph input", "    graph.replay()\n    return y\n\n\ndef fresh"),
}


def _line(text: str) -> int:
    from measuring.running import PROGRAMS

    source = (PROGRAMS / "traps.py").read_text()
    assert source.count(text) == 1
    at = source.index(text)
    return source.count("\n", 0, at + len(text) - len(text.lstrip())) + 1


machines = pytest.mark.parametrize("machine", ["virtual", pytest.param("real", marks=pytest.mark.gpu)])


@pytest.mark.slow
@machines
@pytest.mark.parametrize("trap", VERDICTS)
def test_each_trap_gets_its_verdict(trap: str, machine: str) -> None:
    found = VERDICTS[trap] in facts("traps", machine)[trap]["kinds"]
    assert found is not (machine == "virtual" and trap in NOT_OF_THE_MODEL)


@pytest.mark.slow
@machines
@pytest.mark.parametrize("trap", LINES)
def test_the_verdict_names_the_line(trap: str, machine: str) -> None:
    kind, text = LINES[trap]
    place = facts("traps", machine)[trap]["places"][kind]
    assert place.endswith(f"traps.py:{_line(text)}")


@pytest.mark.slow
@machines
def test_a_function_without_a_mistake_gets_no_serious_verdict(machine: str) -> None:
    said = facts("traps", machine)
    assert said["none"]["serious"] == []
    assert "escapes to another stream" not in said["forks and joins"]["kinds"]
    assert "stale graph input" not in said["fresh graph"]["kinds"]
