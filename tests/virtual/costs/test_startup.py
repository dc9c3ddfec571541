"""What first uses cost, inferred from what first calls took in processes with other orders."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.first_calls import FirstCalls, OperatorCalls
from unstall.virtual.costs.kernel_modules import KernelModules, Module
from unstall.virtual.costs.model import ColdCode, Startup
from unstall.virtual.costs.startup_fit import fit

MS, MB = 1_000_000, 1_000_000
USUAL, AGAIN, KERNEL, HANDLE, EARLY = 20_000, 60_000, 120_000, 90 * MS, 0.2


def suite(modules: dict[str, int], sizes: dict[int, int]) -> tuple[dict[str, int], KernelModules]:
    """A suite with one call of each operator, which launches one kernel of its own. Products whose name begins with a b
    are of bfloat16. Returns the operators' numbers, and what is known of modules.
    """
    numbers = {name: number for number, name in enumerate(sorted(modules))}
    return numbers, KernelModules(
        [
            Module(size, [f"{name}_kernel" for name, at in modules.items() if at == module])
            for module, size in sizes.items()
        ],
        {number: [f"{name}_kernel"] for name, number in numbers.items()},
        {number: (name, dtype_of(name)) for name, number in numbers.items()},
    )


def dtype_of(name: str) -> str:
    return "bfloat16" if name.startswith("b") else "float32"


def processes(modules: dict[str, int], ns: dict[int, int], count: int, seed: int = 0) -> list[FirstCalls]:
    """Processes that call the operators in random orders. `modules` has each operator's module, `ns` its time."""
    chance = random.Random(seed)
    numbers = {name: number for number, name in enumerate(sorted(modules))}
    found = []
    for _ in range(count):
        names = sorted(modules)
        chance.shuffle(names)
        loaded: set[object] = set()
        calls = []
        for name in names:
            first = USUAL + KERNEL
            if modules[name] not in loaded:
                first += round(ns[modules[name]] * (1 + EARLY / (len(loaded - {"float32", "bfloat16"}) + 1)))
            if name in CUBLAS:
                first += 0 if dtype_of(name) in loaded else HANDLE
                loaded.add(dtype_of(name))
            loaded.add(modules[name])
            times = [round(first * chance.uniform(0.95, 1.05)), AGAIN, *[USUAL] * 4]
            calls.append(OperatorCalls(name, [numbers[name]], times))
        found.append(FirstCalls(120 * MS, 110 * MS, calls))
    return found


def test_modules_have_the_times_that_they_took() -> None:
    modules = {"add": 0, "sub": 0, "rsub": 0, "mul": 1, "gt": 2, "lt": 2, "mm": 3, "bmm": 4}
    modules |= {"addmm": 5, "baddbmm": 6}
    ns = {0: 12 * MS, 1: 10 * MS, 2: 5 * MS, 3: 4 * MS, 4: 40 * MS, 5: 6 * MS, 6: 20 * MS}
    _, kernels = suite(modules, dict.fromkeys(ns, MB))
    startup, module_of = fit(processes(modules, ns, 60), kernels)
    assert (startup.init, startup.context) == (120 * MS, 110 * MS)
    assert startup.cold.extra_ns("gt", USUAL, 5 * MS) == pytest.approx(AGAIN - USUAL, rel=0.5)
    assert startup.kernel == pytest.approx(KERNEL, rel=0.2)
    assert 0.05 < startup.early < EARLY  # of so few modules, all are early, so that their own times have a part of it
    assert [startup.modules[module_of[f"{name}_kernel"]] for name in ("add", "mul", "lt")] == pytest.approx(
        [12 * MS, 10 * MS, 5 * MS], rel=0.15
    )
    assert startup.libraries == []
    assert sorted(modules for _, modules in startup.shared) == [[3, 5], [4, 6]]  # of float32, and of bfloat16
    assert [ns for ns, _ in startup.shared] == pytest.approx([HANDLE, HANDLE], rel=0.15)


def test_the_first_kernel_that_can_fail_an_assertion_takes_longer() -> None:
    modules = {"gather": 0, "index": 1, "scatter": 2, "add": 3, "mul": 4}
    _, kernels = suite(modules, dict.fromkeys(modules.values(), MB))
    asserting = [msgspec.structs.replace(module, asserts=at < 3) for at, module in enumerate(kernels.modules)]
    kernels = msgspec.structs.replace(kernels, modules=asserting)
    seen = processes(modules, dict.fromkeys(modules.values(), 4 * MS), 40)
    for process in seen:
        first = next(at for at, calls in enumerate(process.calls) if modules[calls.name] < 3)
        process.calls[first].ns[0] += 6 * MS
    startup, _ = fit(seen, kernels)
    ((ns, which),) = startup.shared
    assert which == [0, 1, 2]
    assert ns == pytest.approx(6 * MS, rel=0.3)


def rows(*calls: tuple[str, int]) -> FirstCalls:
    """A process with these first calls: the name of an operator of `OF_KIND`, and its time."""
    numbers = {name: number for number, name in enumerate(OF_KIND)}
    return FirstCalls(0, 0, [OperatorCalls(name, [numbers[name]], [USUAL + ns, *[USUAL] * 7]) for name, ns in calls])


OF_KIND = {
    "mm": ("float32", [0]),
    "addmm": ("bfloat16", [1, 2]),
    "bmm": ("float32", [2]),  # splits its work with a kernel of a module that products of both dtypes use
    "convolution": ("float32", [3]),
    "convolution_backward": ("float32", [4]),
    "add": ("float32", [5]),
    "baddbmm": ("float32", [0, 5]),
}
"""The dtype of an operator's call, and the modules of its kernels."""


def of_kind() -> KernelModules:
    names = ["sgemm", "nvjet_tst", "cublasLt::splitKreduce_kernel", "sm80_xmma_gemm_f32", "cudnn::fprop", "add"]
    return KernelModules(
        [Module(MB, [name]) for name in names],
        {number: [names[at] for at in modules] for number, (_, modules) in enumerate(OF_KIND.values())},
        {number: (name, dtype) for number, (name, (dtype, _)) in enumerate(OF_KIND.items())},
    )


def test_convolutions_set_up_cublas_with_kernels_of_cublas_only() -> None:
    first = [rows(("mm", 70 * MS), ("convolution", 2 * MS), ("addmm", 100 * MS))] * 4
    later = [rows(("convolution_backward", 9 * MS), ("convolution", 72 * MS), ("mm", 2 * MS), ("add", MS))] * 4
    startup, _ = fit(first + later, of_kind())
    shared = {tuple(modules): ns for ns, modules in startup.shared}
    assert shared == {(0, 3): pytest.approx(70 * MS, rel=0.05), (1,): pytest.approx(100 * MS, rel=0.05)}
    assert {tuple(names): round(ns / MS) for ns, names in startup.libraries} == {("convolution_backward",): 7}


def test_what_several_dtypes_use_sets_up_nothing() -> None:
    """A module that products of both dtypes use, or other operators."""
    seen = [rows(("bmm", 3 * MS), ("add", 2 * MS), ("mm", 72 * MS)), rows(("add", 2 * MS), ("baddbmm", 72 * MS))] * 3
    startup, _ = fit(seen, of_kind())
    assert [modules for _, modules in startup.shared] == [[0, 3]]


def test_two_calls_are_too_few_to_tell_what_is_set_up_for_others() -> None:
    assert not fit([rows(("mm", 70 * MS), ("bmm", 2 * MS))] * 2, of_kind()).startup.shared


def test_a_call_that_loads_libraries_says_nothing_of_modules() -> None:
    kernels = of_kind()
    loader = rows(("add", 50 * MS))
    loader.calls[0] = msgspec.structs.replace(loader.calls[0], libraries=["libheuristic.so"])
    startup, _ = fit([loader, loader, loader, rows(("add", 5 * MS))], kernels)
    assert startup.modules[5] == 5 * MS
    assert startup.early == 0


def test_a_call_that_loads_libraries_says_nothing_of_kernels() -> None:
    numbers, kernels = suite({"add": 0, "sub": 0}, {0: MB})
    calls = [
        OperatorCalls("add", [numbers["add"]], [USUAL + 5 * MS, *[USUAL] * 7]),
        OperatorCalls("sub", [numbers["sub"]], [USUAL + 50 * MS, *[USUAL] * 7], libraries=["libheuristic.so"]),
    ]
    assert fit([FirstCalls(0, 0, calls)] * 3, kernels).startup.kernel == 0


def test_a_first_convolution_says_nothing_of_cublas() -> None:
    seen = [rows(("mm", 70 * MS), ("add", 2 * MS))] * 3 + [rows(("convolution", 150 * MS), ("add", 2 * MS))] * 4
    startup, _ = fit(seen, of_kind())
    assert [modules for _, modules in startup.shared] == [[0, 3]]
    assert startup.shared[0][0] == pytest.approx(70 * MS, rel=0.05)


def test_a_library_s_module_of_unknown_time_takes_what_torch_s_take() -> None:
    """No call loads the product's module and sets up nothing."""
    startup, _ = fit([rows(("mm", 70 * MS), ("add", 6 * MS))] * 3, of_kind())
    assert startup.modules[0] == pytest.approx(6 * MS, rel=0.1)
    assert startup.shared[0][0] == pytest.approx(64 * MS, rel=0.1)


@pytest.mark.parametrize(("base", "rate"), [(0.0, 4.0), (6_000_000.0, 4.0), (2_000_000.0, 0.0)])
def test_times_of_modules_grow_with_their_size(base: float, rate: float) -> None:
    modules = {f"op{at}": at for at in range(12)}
    sizes = {at: 500_000 * (1 + at) for at in range(12)}
    numbers, kernels = suite(modules, sizes)
    seen = [
        FirstCalls(0, 0, [OperatorCalls(name, [numbers[name]], [round(USUAL + base + rate * sizes[at]), *[USUAL] * 7])])
        for name, at in modules.items()
        if at != 11
    ]
    startup, module_of = fit(seen, kernels)
    assert startup.modules[module_of["op11_kernel"]] == pytest.approx(base + rate * sizes[11], rel=0.1)


def charged(startup: Startup, module_of: dict[str, int], names: Iterable[str]) -> int:
    """What the virtual GPU charges for first calls of operators, in this order."""
    loaded: list[int] = []
    ns = 0.0
    for name in names:
        module = module_of[f"{name}_kernel"]
        ns += startup.kernel
        if module not in loaded:
            loaded.append(module)
            ns += startup.modules[module] * (1 + startup.early / len(loaded))
    return round(ns)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    ns=st.lists(st.integers(2 * MS, 60 * MS), min_size=6, max_size=6),
    seed=st.integers(0, 1000),
)
def test_processes_are_charged_what_they_took(sizes: list[int], ns: list[int], seed: int) -> None:
    modules = {f"op{module}_{at}": module for module, size in enumerate(sizes) for at in range(size)}
    _, kernels = suite(modules, dict.fromkeys(range(len(sizes)), MB))
    seen = processes(modules, dict(enumerate(ns)), 12, seed)
    startup, module_of = fit(seen, kernels)
    took = sum(calls.loading_ns for process in seen for calls in process.calls)
    total = sum(charged(startup, module_of, [calls.name for calls in process.calls]) for process in seen)
    assert total == pytest.approx(took, rel=0.25)


def test_a_module_that_no_call_loaded_alone_takes_as_long_as_others_of_its_size() -> None:
    modules = {"a": 0, "b": 1, "c": 2}
    numbers, kernels = suite(modules, {0: 2 * MB, 1: 4 * MB, 2: 8 * MB})
    kernels = KernelModules(kernels.modules, {**kernels.launched, numbers["c"]: ["c_kernel", "a_kernel"]})
    seen = [
        FirstCalls(0, 0, [OperatorCalls(name, [numbers[name]], [ns, *[USUAL] * 7]) for name, ns in calls])
        for calls in ([("c", 50 * MS), ("b", 17 * MS)], [("a", 9 * MS)], [("b", 17 * MS)])
    ]
    startup, module_of = fit(seen, kernels)
    assert startup.modules[module_of["c_kernel"]] == pytest.approx(33 * MS, rel=0.1)  # 1 ms, and 4 ms a MB


def test_a_module_of_unknown_time_says_nothing_of_early_ones() -> None:
    """Only the first product of a process loads the module, and sets up cuBLAS at the same time."""
    _, kernels = suite({"mm": 0}, {0: MB})
    startup, _ = fit(processes({"mm": 0}, {0: 4 * MS}, 6), kernels)
    assert (startup.early, startup.modules) == (0.0, [0])


def test_one_process_is_enough_for_a_first_guess() -> None:
    _, kernels = suite({"mm": 0, "add": 1}, {0: MB, 1: MB})
    calls = [OperatorCalls("mm", [1], [90 * MS, AGAIN]), OperatorCalls("add", [0], [MS, AGAIN])]
    startup, module_of = fit([FirstCalls(1, 2, calls)], kernels)
    assert startup.modules[module_of["add_kernel"]] == pytest.approx(MS, rel=0.1)


def test_nothing_is_inferred_from_processes_that_called_nothing() -> None:
    assert fit([FirstCalls(1, 2, [])], KernelModules()).startup == Startup(init=1, context=2)


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
            calls.append(OperatorCalls(f"op{at}", [at], ns))
        found.append(FirstCalls(0, 0, calls))
    cold = fit(found, KernelModules()).startup.cold
    assert cold.again == pytest.approx(0.1, abs=0.01)
    for warm, loading in ((12_000, 10 * MS), (35_000, 10 * MS), (20_000, 100 * MS), (20_000, MS)):
        for name in ("op7", "another"):
            expected = true.extra_ns(name, warm, loading)
            assert cold.extra_ns(name, warm, loading) == pytest.approx(expected, rel=0.2)


NUMBER = {"attention": 0, "conv": 1, "add": 2, "mm": 3}
"""The numbers of calls: 10 times this, and more for calls with other arguments."""


def called(*operators: tuple[str, int, list[int], list[str]]) -> FirstCalls:
    """A process in which each operator has the given name, ns of the first call, ns with other arguments, libraries."""
    return FirstCalls(
        0,
        0,
        [
            OperatorCalls(
                name,
                [10 * NUMBER[name] + at for at in range(len(others_ns) + 1)],
                [ns, *[USUAL] * 7],
                others_ns,
                libraries,
            )
            for name, ns, others_ns, libraries in operators
        ],
    )


def test_a_library_is_loaded_by_the_first_of_the_operators_that_share_it() -> None:
    seen = [
        called(("conv", 60 * MS, [], ["libgraph.so"]), ("attention", 10 * MS, [], ["libengines.so"])),
        called(("attention", 40 * MS, [], ["libengines.so", "libgraph.so"]), ("conv", 30 * MS, [], [])),
    ]
    libraries = {tuple(names): round(ns / MS) for ns, names in fit(seen * 6, KernelModules()).startup.libraries}
    assert libraries == {("attention", "conv"): 30, ("attention",): 10, ("conv",): 30}


def test_an_operator_whose_every_new_shape_is_slow_pays_for_each() -> None:
    process = called(("attention", 70 * MS, [50 * MS, 60 * MS], []), ("add", 9 * MS, [USUAL, 9 * MS], []))
    startup = fit([process] * 6, KernelModules()).startup
    assert startup.shapes == {"attention": 55 * MS - USUAL}
    assert {tuple(names): round(ns / MS) for ns, names in startup.libraries} == {("add",): 9, ("attention",): 15}


def test_kernels_that_are_compiled_without_a_cache_on_disk_have_a_time_of_their_own() -> None:
    cached = called(("attention", 100 * MS, [], []), ("conv", 110 * MS, [], []), ("mm", MS, [], []))
    first_on_the_machine = called(("attention", 600 * MS, [], []), ("conv", 110 * MS, [], []))
    uncached = [
        called(("attention", 450 * MS, [], []), ("conv", 130 * MS, [], []), ("mm", ns, [], [])) for ns in (MS, 120 * MS)
    ]
    startup = fit(
        [first_on_the_machine, *[cached] * 5, *(FirstCalls(0, 0, each.calls, cached=False) for each in uncached)],
        KernelModules(),
    ).startup
    assert startup.compiled == {"attention": 350 * MS}
