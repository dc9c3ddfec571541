"""Which operators share a module, from what their first calls took in processes with other orders."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.model import ColdCode
from unstall.virtual.costs.startup_fit import FirstCalls, OperatorCalls, fit

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
            calls.append(OperatorCalls(name, [round(first * chance.uniform(0.95, 1.05)), AGAIN, *[USUAL] * 4]))
        found.append(FirstCalls(120 * MS, 110 * MS, calls))
    return found


def test_operators_of_one_module_are_found_together_with_its_time() -> None:
    modules = {"add": 0, "sub": 0, "rsub": 0, "mul": 1, "gt": 2, "lt": 2, "mm": 3, "bmm": 4, "addmm": 3}
    startup = fit(processes(modules, {0: 12 * MS, 1: 10 * MS, 2: 5 * MS, 3: 4 * MS, 4: 40 * MS}, 60))
    assert (startup.init, startup.context) == (120 * MS, 110 * MS)
    assert startup.cold.extra_ns("gt", USUAL, 5 * MS) == pytest.approx(AGAIN - USUAL, rel=0.5)
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
        for name in (calls.name for calls in process.calls):
            needed = {at for at, (_, names) in enumerate(startup.modules) if name in names}
            charged += startup.kernels[name] + sum(startup.modules[at][0] for at in needed - loaded)
            loaded |= needed
        took = sum(calls.loading_ns for calls in process.calls)
        # If two modules take about the same time, they cannot always be told from one that only one process shows.
        assert 0.8 * took <= charged <= 2 * took


def test_one_process_is_enough_for_a_first_guess() -> None:
    startup = fit([FirstCalls(1, 2, [OperatorCalls(name, [ns, AGAIN]) for name, ns in (("mm", 90 * MS), ("add", MS))])])
    assert {"mm", "add"} <= set(startup.kernels)


def test_second_calls_take_longer_the_longer_kernels_were_loaded() -> None:
    chance, true = random.Random(0), ColdCode(200_000, 6_000, 0.6, 0.1, {"op7": 50_000})
    found = []
    for _ in range(8):
        calls = []
        for at in range(100):
            warm, loading = chance.randrange(10_000, 40_000), round(10 ** chance.uniform(4, 8))
            noise = chance.uniform(0.8, 1.2) if at % 10 else 9.0  # some calls are slow by chance
            extra = noise * true.extra_ns(f"op{at}", warm, loading)
            ns = [warm + loading, warm + round(extra), warm + round(0.1 * extra), *[warm] * 5]
            calls.append(OperatorCalls(f"op{at}", ns))
        found.append(FirstCalls(0, 0, calls))
    cold = fit(found).cold
    assert cold.again == pytest.approx(0.1, abs=0.01)
    for warm, loading in ((12_000, 10 * MS), (35_000, 10 * MS), (20_000, 100 * MS), (20_000, MS)):
        for name in ("op7", "another"):
            expected = true.extra_ns(name, warm, loading)
            assert cold.extra_ns(name, warm, loading) == pytest.approx(expected, rel=0.2)


def called(*operators: tuple[str, int, list[int], list[str]]) -> FirstCalls:
    """A process in which each operator has the given name, ns of the first call, ns with other shapes, libraries."""
    calls = [
        OperatorCalls(name, [ns, *[USUAL] * 7], others_ns, libraries) for name, ns, others_ns, libraries in operators
    ]
    return FirstCalls(0, 0, calls)


def test_a_library_is_loaded_by_the_first_of_the_operators_that_share_it() -> None:
    seen = [
        called(("conv", 60 * MS, [], ["libgraph.so"]), ("attention", 10 * MS, [], ["libengines.so"])),
        called(("attention", 40 * MS, [], ["libengines.so", "libgraph.so"]), ("conv", 30 * MS, [], [])),
    ]
    modules = {tuple(names): round(ns / MS) for ns, names in fit(seen * 6).modules}
    assert modules == {("attention", "conv"): 30, ("attention",): 10, ("conv",): 30}


def test_an_operator_whose_every_new_shape_is_slow_pays_for_each() -> None:
    startup = fit([called(("attention", 70 * MS, [50 * MS, 60 * MS], []), ("add", 9 * MS, [USUAL, 9 * MS], []))] * 6)
    assert startup.shapes == {"attention": 55 * MS - USUAL}
    assert {tuple(names): round(ns / MS) for ns, names in startup.modules} == {("add",): 9, ("attention",): 15}


def test_kernels_that_are_compiled_without_a_cache_on_disk_have_a_time_of_their_own() -> None:
    cached = called(("attention", 100 * MS, [], []), ("conv", 110 * MS, [], []), ("mm", MS, [], []))
    first_on_the_machine = called(("attention", 600 * MS, [], []), ("conv", 110 * MS, [], []))
    uncached = [
        called(("attention", 450 * MS, [], []), ("conv", 130 * MS, [], []), ("mm", ns, [], [])) for ns in (MS, 120 * MS)
    ]
    startup = fit(
        [first_on_the_machine, *[cached] * 5, *(FirstCalls(0, 0, each.calls, cached=False) for each in uncached)]
    )
    assert startup.compiled == {"attention": 350 * MS}
