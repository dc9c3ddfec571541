"""The narrow door: what `import unstall` offers, and how little that costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import unstall

HEAVY = ("msgspec", "numpy", "rich", "torch")


def _modules_after(*statements: str) -> set[str]:
    code = "; ".join(("import sys", *statements, "print(*sys.modules)"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_public_names_are_sorted_and_all_there() -> None:
    assert unstall.__all__ == sorted(unstall.__all__)
    assert dir(unstall) == unstall.__all__
    assert [name for name in unstall.__all__ if not hasattr(unstall, name)] == []


def test_a_name_is_the_same_thing_each_time() -> None:
    assert unstall.explain is unstall.explain
    assert callable(unstall.explain)
    assert callable(unstall.load)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'unstall' has no attribute 'nothing'"):
        getattr(unstall, "nothing")  # noqa: B009


def test_importing_unstall_imports_nothing_heavy() -> None:
    assert _modules_after("import unstall").isdisjoint(HEAVY)


def test_a_step_that_nothing_records_imports_next_to_nothing() -> None:
    modules = _modules_after("import unstall", "unstall.step()")
    assert modules.isdisjoint(HEAVY)
    assert {name for name in modules if name.startswith("unstall.")} == {
        "unstall._version",
        "unstall.errors",
        "unstall.guest",
        "unstall.guest.active",
        "unstall.guest.interrupts",
        "unstall.guest.step_source",
        "unstall.guest.steps",
    }


def test_help_imports_nothing_heavy() -> None:
    assert _modules_after("from unstall.cli import build_parser", "build_parser().format_help()").isdisjoint(HEAVY)


def test_measuring_a_python_function_imports_no_framework() -> None:
    after = _modules_after("import unstall", "unstall.bench(sum, [1, 2], max_seconds=0.01)")
    assert after.isdisjoint({"torch", "jax", "cupy"})


def test_guarding_imports_nothing_heavy() -> None:
    assert _modules_after("import unstall", "unstall.no_sync().__enter__()").isdisjoint(HEAVY)


def test_explaining_a_trace_does_not_import_torch_or_pandas() -> None:
    assert _modules_after("import unstall", "unstall.explain").isdisjoint({"torch", "pandas"})


def test_timing_what_is_not_torchs_does_not_import_torch() -> None:
    statements = "unstall.compare({'a': int, 'b': int}, max_seconds=0.01)", "unstall.Timer('1').timeit(3)"
    block = "unstall.Stopwatch(show=False).__enter__().__exit__(None, None, None)"
    assert "torch" not in _modules_after("import unstall", *statements, block)
