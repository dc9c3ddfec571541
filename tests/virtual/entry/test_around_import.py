"""Acting around another's import."""

from __future__ import annotations

import importlib
import importlib.util
import sys
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
