"""Which torch the virtual GPU is compiled against, and with what."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from unstall.virtual.shim import build as building
from unstall.virtual.shim.build import Torch, VirtualGpuError, build, installed_torch


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


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Torch:
    """A torch for which a shim of one line is compiled, into a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder in ("shim", "frames"):
        (tmp_path / folder).mkdir()
    (tmp_path / "shim" / "one.cpp").write_text("int one() { return 1; }\n")
    (tmp_path / "frames" / "_frames.c").write_text("int frames;\n")
    (tmp_path / "frames" / "_frames.h").touch()
    monkeypatch.setattr(building, "SHIM", tmp_path / "shim")
    monkeypatch.setattr(building, "FRAMES", tmp_path / "frames")
    return Torch(tmp_path, "2.13.0+cpu")


def test_what_is_in_the_cache_needs_no_compiler(small: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    made = build(small)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", "")
    assert build(small) == made


def test_the_compiler_may_be_named_with_arguments(small: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "env g++ -DNAMED=1")
    (building.SHIM / "one.cpp").write_text("#ifndef NAMED\n#error not named\n#endif\n")
    assert build(small).exists()


def test_what_is_compiled_names_no_folder_of_this_machine(small: Torch) -> None:
    (building.SHIM / "one.h").write_text("inline const char* header() { return __FILE__; }\n")
    (small.root / "include").mkdir()
    (small.root / "include" / "of_torch.h").write_text("inline const char* of_torch() { return __FILE__; }\n")
    (building.SHIM / "one.cpp").write_text(
        '#include "one.h"\n#include <of_torch.h>\nconst char* files[] = {__FILE__, header(), of_torch()};\n'
    )
    compiled = build(small).read_bytes()
    assert str(small.root).encode() not in compiled
    for named in (b"unstall/virtual/shim/one.cpp", b"unstall/virtual/shim/one.h", b"torch/include/of_torch.h"):
        assert named in compiled


def test_a_cache_that_cannot_be_written_says_what_to_do(small: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    (small.root / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(small.root / "file"))
    with pytest.raises(VirtualGpuError, match=r"cannot be used: .*name another folder in XDG_CACHE_HOME"):
        build(small)


def test_use_keeps_a_shim_from_being_forgotten(small: Torch) -> None:
    made = build(small)
    long_ago = time.time() - 2 * building.STALE_S
    os.utime(made, (long_ago, long_ago))
    assert build(small) == made
    assert made.stat().st_mtime > long_ago + building.STALE_S
    (building.SHIM / "one.cpp").write_text("int two() { return 2; }\n")
    assert build(small) != made
    assert made.exists()


def test_a_shim_that_nothing_used_is_forgotten(small: Torch) -> None:
    made = build(small)
    long_ago = time.time() - 2 * building.STALE_S
    os.utime(made, (long_ago, long_ago))
    (building.SHIM / "one.cpp").write_text("int two() { return 2; }\n")
    build(small)
    assert not made.exists()


def test_only_this_user_may_write_to_what_is_compiled(small: Torch) -> None:
    before = os.umask(0)
    try:
        made = build(small)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (made, *made.parents[:3])} == {0o700}
    assert build(small) == made


@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_what_others_may_write_is_not_loaded(small: Torch, above: int, mode: int) -> None:
    made = build(small)
    where = (made, *made.parents)[above]
    where.chmod(mode)
    with pytest.raises(VirtualGpuError, match=f"not loaded from {where}: others may write to it"):
        build(small)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("above", [0, 1, 2])
def test_what_belongs_to_another_is_not_loaded(small: Torch, above: int) -> None:
    made = build(small)
    where = (made, *made.parents)[above]
    os.chown(where, 12345, -1)
    with pytest.raises(VirtualGpuError, match="it belongs to user 12345"):
        build(small)
