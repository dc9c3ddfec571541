"""Which operators share a module, from what their first calls took in processes with other orders."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.model import SecondCall
from unstall.virtual.costs.startup import FirstCalls, fit

MS = 1_000_000
USUAL, AGAIN, OWN, LIBRARY = 20_000, 60_000, 120_000, 90 * MS


def processes(modules: dict[str, int], ns: dict[int, int], count: int, seed: int = 0) -> list[FirstCalls]:
    """Processes that call the operators in random orders. `modules` has each operator's module, `ns` its time."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        names = sorted(modules)
        chance.shuffle(names)
        loaded: set[object] = set()
        calls = []
        for name in names:
            first = USUAL + OWN + (0 if modules[name] in loaded else ns[modules[name]])
            if name in CUBLAS:
                first += 0 if "cublas" in loaded else LIBRARY
                loaded.add("cublas")
            loaded.add(modules[name])
            calls.append((name, round(first * chance.uniform(0.95, 1.05)), AGAIN, USUAL))
        found.append(FirstCalls(120 * MS, 110 * MS, calls))
    return found


def test_operators_of_one_module_are_found_together_with_its_time() -> None:
    modules = {"add": 0, "sub": 0, "rsub": 0, "mul": 1, "gt": 2, "lt": 2, "mm": 3, "bmm": 4, "addmm": 3}
    startup = fit(processes(modules, {0: 12 * MS, 1: 10 * MS, 2: 5 * MS, 3: 4 * MS, 4: 40 * MS}, 60))
    assert (startup.init, startup.context) == (120 * MS, 110 * MS)
    assert startup.second.extra_ns(USUAL, 0) == pytest.approx(AGAIN - USUAL)
    assert {tuple(names): round(ns / MS) for ns, names in startup.modules} == {
        ("add", "rsub", "sub"): 12,
        ("addmm", "mm"): 4,
        ("bmm",): 40,
        ("gt", "lt"): 5,
        ("mul",): 10,
        tuple(sorted(CUBLAS)): 90,
    }
    assert all(ns == pytest.approx(OWN, rel=0.2) for ns in startup.kernels.values())


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    ns=st.lists(st.integers(2 * MS, 60 * MS), min_size=6, max_size=6),
    seed=st.integers(0, 1000),
)
def test_no_process_is_charged_less_than_it_took(sizes: list[int], ns: list[int], seed: int) -> None:
    modules = {f"op{module}_{at}": module for module, size in enumerate(sizes) for at in range(size)}
    seen = processes(modules, dict(enumerate(ns)), 72, seed)
    startup = fit(seen)
    for process in seen:
        loaded: set[int] = set()
        charged = 0
        for name, *_ in process.calls:
            needed = {at for at, (_, names) in enumerate(startup.modules) if name in names}
            charged += startup.kernels[name] + sum(startup.modules[at][0] for at in needed - loaded)
            loaded |= needed
        took = sum(first - later for _, first, _, later in process.calls)
        # If two modules take about the same time, they cannot always be told from one that only one process shows.
        assert 0.8 * took <= charged <= 2 * took


def test_one_process_is_enough_for_a_first_guess() -> None:
    startup = fit([FirstCalls(1, 2, [("mm", 90 * MS, AGAIN, USUAL), ("add", 12 * MS, AGAIN, USUAL)])])
    assert {"mm", "add"} <= set(startup.kernels)


def test_second_calls_take_a_part_of_a_later_call_and_less_the_more_operators_are_known() -> None:
    chance, true = random.Random(0), SecondCall(30_000, 2.0, 80.0)
    found = []
    for _ in range(5):
        calls = []
        for at in range(100):
            later = chance.randrange(20_000, 70_000)
            noise = chance.uniform(0.8, 1.2) if at % 10 else 9.0  # some calls are slow by chance
            calls.append((f"op{at}", 200_000, later + round(noise * true.extra_ns(later, at)), later))
        found.append(FirstCalls(0, 0, calls))
    second = fit(found).second
    for later, known in ((20_000, 0), (60_000, 0), (30_000, 50)):
        assert second.extra_ns(later, known) == pytest.approx(true.extra_ns(later, known), rel=0.15)
