"""Acting around another's import."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from pathlib import Path

import pytest

from unstall.guest.imports import around_import, when_imported


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that says when it runs."""
    (tmp_path / "heavy_module.py").write_text("import sys\nsys.modules['heavy_story'].append('runs')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "heavy_module", raising=False)
    return "heavy_module"


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setitem(sys.modules, "heavy_story", told)
    return told


def test_before_comes_before_the_module_is_known_and_after_once_it_ran(name: str, story: list[str]) -> None:
    around_import(name, lambda: story.append(f"before {name in sys.modules}"), lambda: story.append("after"))
    assert story == []
    importlib.import_module(name)
    assert story == ["before False", "runs", "after"]
    importlib.reload(sys.modules[name])
    assert story[3:] == ["runs"]


def test_whom_before_has_waiting_for_the_import_too_is_told_first(name: str, story: list[str]) -> None:
    def before() -> None:
        when_imported(name, lambda: story.append("told"))

    around_import(name, before, lambda: story.append("after"))
    importlib.import_module(name)
    assert story == ["runs", "told", "after"]


def test_an_import_raises_what_before_raises_each_time(name: str, story: list[str]) -> None:
    def refuse() -> None:
        raise LookupError("no such GPU")

    around_import(name, refuse, lambda: story.append("after"))
    for _ in range(2):
        with pytest.raises(LookupError, match="no such GPU"):
            importlib.import_module(name)
    assert story == []


def test_who_only_asks_where_the_module_is_changes_nothing(name: str, story: list[str]) -> None:
    around_import(name, lambda: story.append("before"), lambda: story.append("after"))
    for _ in range(2):
        assert importlib.util.find_spec(name) is not None
    assert story == []
    importlib.import_module(name)
    assert story == ["before", "runs", "after"]


def test_two_may_wait_for_one_import(name: str, story: list[str]) -> None:
    for who in ("first", "second"):
        when_imported(name, lambda who=who: story.append(who))  # type: ignore[misc]
    importlib.import_module(name)
    assert sorted(story) == ["first", "runs", "second"]


def test_who_asks_while_another_thread_imports_is_told_after_the_import(
    name: str, tmp_path: Path, story: list[str]
) -> None:
    """The module is in `sys.modules` before its code has run."""
    imported_half, asked = threading.Event(), threading.Event()
    sys.modules["heavy_events"] = (imported_half, asked)  # type: ignore[assignment]
    (tmp_path / "heavy_module.py").write_text(
        "import sys\n"
        "half, asked = sys.modules.pop('heavy_events')\n"
        "half.set()\n"
        "asked.wait(0.2)\n"
        "sys.modules['heavy_story'].append('runs')\n"
    )
    importing = threading.Thread(target=importlib.import_module, args=(name,))
    importing.start()
    imported_half.wait(60)
    assert name in sys.modules
    when_imported(name, lambda: story.append("told"))
    asked.set()
    importing.join(60)
    assert story == ["runs", "told"]


def test_who_asks_while_an_import_fails_in_another_thread_hears_nothing(
    name: str, tmp_path: Path, story: list[str]
) -> None:
    imported_half = threading.Event()
    sys.modules["heavy_events"] = imported_half  # type: ignore[assignment]
    (tmp_path / "heavy_module.py").write_text(
        "import sys, time\n"
        "sys.modules.pop('heavy_events').set()\n"
        "time.sleep(0.2)\n"
        "raise ImportError('no such library')\n"
    )
    failed: list[str] = []

    def import_it() -> None:
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(str(error))

    importing = threading.Thread(target=import_it)
    importing.start()
    imported_half.wait(60)
    when_imported(name, lambda: story.append("told"))
    importing.join(60)
    assert (story, failed) == ([], ["no such library"])
