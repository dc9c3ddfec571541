"""Which torch the virtual GPU is compiled against, and with what."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.virtual import build as building
from unstall.virtual.build import Torch, VirtualGpuError, build, installed_torch


def a_torch(root: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is found as torch of this version."""
    folder = root / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    return folder


def test_a_torch_for_real_gpus_is_refused_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_torch(tmp_path, "2.13.0+cu130", monkeypatch)
    with pytest.raises(VirtualGpuError, match=r"2\.13\.0\+cu130 is built for a real GPU.*pip install torch"):
        installed_torch()


def test_libraries_of_cuda_tell_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_torch(tmp_path, "2.13.0", monkeypatch)
    (folder / "lib" / "libtorch_cuda.so").touch()
    with pytest.raises(VirtualGpuError, match="real GPU"):
        installed_torch()


def test_an_old_torch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_torch(tmp_path, "2.4.1+cpu", monkeypatch)
    with pytest.raises(VirtualGpuError, match=r"needs torch 2\.11 or newer, this is 2\.4\.1"):
        installed_torch()


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(VirtualGpuError, match="no-such-compiler was not found; install it"):
        build(Torch(tmp_path, "2.13.0+cpu"))


def test_what_does_not_compile_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "shim"
    source.mkdir()
    (source / "wrong.cpp").write_text("not C++")
    monkeypatch.setattr(building, "SHIM", source)
    with pytest.raises(VirtualGpuError, match=r"compiling the virtual GPU failed .*wrong\.cpp"):
        build(Torch(tmp_path, "2.13.0+cpu"))
    assert not list((tmp_path / "cache").rglob("*wrong*"))
