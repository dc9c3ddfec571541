"""Which module a kernel is in."""

from __future__ import annotations

import pytest

from unstall.virtual.costs.cubin import Cubin
from unstall.virtual.costs.kernel_modules import Assignment, KernelModules, Module, kernel_modules

ADD, SUB, SORT = b"_Z3addPf", b"_Z3subPf", b"_Z4sortPi"
ARITHMETIC, SORTING = Cubin(500, frozenset({"_Z3addPf", "_Z3subPf"})), Cubin(800, frozenset({"_Z4sortPi"}))


def test_a_kernel_is_in_the_module_whose_code_names_it() -> None:
    seen = Assignment()
    seen.loaded(SORTING)
    seen.loaded(ARITHMETIC)
    seen.launched(ADD, 1)
    seen.launched(SORT, 2)
    assert seen.settle() == ["add(float*)", "sort(int*)"]
    seen.launched(SUB, 1)
    seen.launched(ADD, 1)
    assert seen.settle() == ["sub(float*)", "add(float*)"]
    assert seen.modules() == [
        Module(500, ["add(float*)", "sub(float*)"]),
        Module(800, ["sort(int*)"]),
    ]


def test_of_two_modules_that_define_a_kernel_each_has_the_one_that_was_launched_from_it() -> None:
    seen = Assignment()
    seen.loaded(Cubin(300, frozenset({"_Z4sortPi", "_Z3addPf"})))
    seen.loaded(SORTING)
    seen.launched(ADD, 1)
    seen.launched(SORT, 2)
    seen.settle()
    assert [module.kernels for module in seen.modules()] == [["add(float*)"], ["sort(int*)"]]


def test_a_module_asserts_if_a_kernel_that_was_launched_can_fail() -> None:
    seen = Assignment()
    seen.loaded(Cubin(300, frozenset({"_Z4sortPi"}), frozenset({"_Z4sortPi"})))
    seen.loaded(ARITHMETIC._replace(asserting=frozenset({"_Z3subPf"})))
    seen.launched(ADD, 1)
    seen.launched(SORT, 2)
    seen.settle()
    assert [module.asserts for module in seen.modules()] == [False, True]


def test_a_module_may_be_loaded_long_before_its_first_launch() -> None:
    seen = Assignment()
    seen.loaded(SORTING)
    assert seen.settle() == []
    seen.launched(SORT, 2)
    seen.settle()
    assert [module.kernels for module in seen.modules()] == [["sort(int*)"]]


def test_a_kernel_whose_module_was_not_seen_is_in_none() -> None:
    seen = Assignment()
    seen.loaded(SORTING)
    seen.launched(ADD, 1)
    assert seen.settle() == ["add(float*)"]
    assert seen.modules() == []


def test_a_call_needs_the_modules_of_its_kernels() -> None:
    kernels = KernelModules([Module(1, ["add"]), Module(2, ["sort"])], {7: ["sort", "unknown"]})
    assert kernels.needed(7) == {1}
    assert kernels.needed(8) == set()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_operators_of_one_source_file_of_torch_share_a_module() -> None:
    from unstall.virtual.costs.startup import small_calls
    from unstall.virtual.costs.suite import cases

    suite = cases(3)
    name_of = {number: suite[number].operator.partition(".")[0] for number in small_calls(suite)}
    chosen = [number for number, name in name_of.items() if name in ("_softmax", "_log_softmax", "tanh")]
    kernels = kernel_modules(chosen, 3)
    needed = {name: set[int]() for name in ("_softmax", "_log_softmax", "tanh")}
    for number in chosen:
        needed[name_of[number]] |= kernels.needed(number)
    assert needed["_softmax"] == needed["_log_softmax"] != needed["tanh"]
