"""Which torch the virtual GPU is compiled against, and with what."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from unstall.recording.left import is_running
from unstall.virtual.shim import build as building
from unstall.virtual.shim import load as loading
from unstall.virtual.shim.build import build, names_of
from unstall.virtual.shim.installed import Torch, VirtualGpuError, installed_torch
from unstall.virtual.shim.prebuild import prebuild
from unstall.virtual.shim.progress import Progress
from unstall.virtual.shim.sealed import is_sealed


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
    monkeypatch.setattr(building, "PREBUILT", tmp_path / "prebuilt")
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


@pytest.fixture
def many(small: Torch, monkeypatch: pytest.MonkeyPatch) -> Torch:
    """The same with more files than are compiled at once, which need a header of torch that is slow to compile."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    (small.root / "include").mkdir()
    (small.root / "include" / "of_torch.h").write_text(
        "#pragma once\ninline const char* of_torch() { return __FILE__; }\n"
    )
    (building.SHIM / building.TORCH_HEADERS).write_text("#include <of_torch.h>\n#define AHEAD 1\n")
    for name in ("first", "second", "third"):
        (building.SHIM / f"{name}.cpp").write_text(
            f"#include <of_torch.h>\nconst char* {name}() {{ return of_torch(); }}\n"
        )
    return small


def test_of_many_files_torchs_headers_are_compiled_once_and_thrown_away(many: Torch) -> None:
    (building.SHIM / "one.cpp").write_text("#ifndef AHEAD\n#error without what was compiled ahead\n#endif\n")
    made = build(many)
    compiled = made.read_bytes()
    assert b"torch/include/of_torch.h" in compiled
    assert str(many.root).encode() not in compiled
    assert not list((many.root / "cache").rglob(f"*{building.TORCH_HEADERS}*"))


def test_headers_that_do_not_compile_ahead_cost_only_time(many: Torch) -> None:
    (building.SHIM / building.TORCH_HEADERS).write_text("#error\n")
    assert build(many).exists()


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
    with pytest.raises(VirtualGpuError, match=f"not loaded from {where}: other users may write to it"):
        build(small)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("above", [0, 1, 2])
def test_what_belongs_to_another_is_not_loaded(small: Torch, above: int) -> None:
    made = build(small)
    where = (made, *made.parents)[above]
    os.chown(where, 12345, -1)
    with pytest.raises(VirtualGpuError, match="it belongs to user 12345"):
        build(small)


def an_environment(root: Path, header: str) -> Torch:
    """An installed wheel of torch, with a header of this hash."""
    listed = root / "torch-2.13.0+cpu.dist-info" / "RECORD"
    listed.parent.mkdir(parents=True)
    listed.write_text(
        f"../../../bin/torchrun,sha256={root.name},231\ntorch/include/c10/one.h,sha256={header},1\n"
        "torch/lib/libc10.so,sha256=c10,1\n"
    )
    return Torch(root / "torch", "2.13.0+cpu")


def test_environments_with_the_same_torch_share_what_is_compiled(
    small: Torch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = build(an_environment(tmp_path / "first", "aaa"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build(an_environment(tmp_path / "second", "aaa")) == made
    with pytest.raises(VirtualGpuError, match="no-such-compiler"):
        build(an_environment(tmp_path / "of another build", "bbb"))


def test_a_torch_without_a_list_of_its_files_shares_nothing(small: Torch, tmp_path: Path) -> None:
    assert names_of(small) != names_of(Torch(tmp_path / "other", small.version))


def test_a_changed_header_compiles_only_what_includes_it(small: Torch) -> None:
    for name in ("a", "b"):
        (building.SHIM / f"{name}.h").touch()
        (building.SHIM / f"{name}.cpp").write_text(f'#include "{name}.h"\nint {name};\n')
    build(small)
    before = set(names_of(small).folder.glob("*.o"))
    (building.SHIM / "a.h").write_text("// changed\n")
    build(small)
    assert [path.name[0] for path in {*names_of(small).folder.glob("*.o")} - before] == ["a"]


def test_what_another_compiler_made_is_not_linked(small: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(small)
    first.unlink()
    before = len(list(first.parents[1].glob("one-*.o")))
    monkeypatch.setenv("CXX", "g++ -O1")
    assert build(small) == first
    assert len(list(first.parents[1].glob("one-*.o"))) == before + 1


def test_a_prebuilt_shim_needs_neither_a_compiler_nor_the_cache(small: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    made = prebuild(small)
    shutil.rmtree(building.cache_folder())
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build(small) == made
    assert made.parent == building.PREBUILT
    (building.SHIM / "one.cpp").write_text("int two() { return 2; }\n")
    with pytest.raises(VirtualGpuError, match="no-such-compiler"):
        build(small)


MODULE = """#include <Python.h>
static PyModuleDef about = {PyModuleDef_HEAD_INIT, "_shim"};
PyMODINIT_FUNC PyInit__shim() { return PyModule_Create(&about); }
"""


def test_a_prebuilt_shim_that_does_not_load_is_refused_and_compiled(
    small: Torch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, loading.NAME, None)  # put back afterwards
    (building.SHIM / "one.cpp").write_text(MODULE)
    (building.FRAMES / "_frames.c").write_text("static int frames;\n")
    damaged = names_of(small).prebuilt
    damaged.parent.mkdir()
    damaged.write_text("no library")
    assert loading._import_usable(small, damaged).__file__ == str(names_of(small).cached)
    refused, compiling, *_ = capsys.readouterr().err.splitlines()
    assert refused.startswith(f"unstall: the virtual GPU that came with unstall does not load here: {damaged.name}: ")
    assert compiling == "unstall: compiling the virtual GPU, once for this build of torch (2.13.0+cpu)"


def test_progress_says_what_is_compiled_and_how_many_of_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("compiling", 2) as progress:
        progress.begins("a.cpp")
        progress.begins("b.cpp")
        assert progress.line() == "unstall: 0 of 2 files, 0 s: a.cpp, b.cpp"
        progress.ends("a.cpp")
        assert progress.line() == "unstall: 1 of 2 files, 0 s: b.cpp"
        progress.begins("x" * 100)
        assert len(progress.line()) < 80
    assert capsys.readouterr().err == "unstall: compiling\nunstall: compiled in 0 s\n"


@pytest.mark.parametrize("left", [0, 100, -1, -40])
def test_a_library_that_was_cut_short_is_made_anew(small: Torch, left: int) -> None:
    made = build(small)
    whole = made.read_bytes()
    made.write_bytes(whole[:left])
    assert build(small) == made
    assert made.read_bytes() == whole


def test_a_library_that_was_changed_is_made_anew(small: Torch) -> None:
    made = build(small)
    whole = made.read_bytes()
    made.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    assert build(small).read_bytes() == whole


def test_an_object_that_was_cut_short_is_compiled_again(small: Torch) -> None:
    made = build(small)
    (damaged,) = made.parents[1].glob("one-*.o")
    whole = damaged.read_bytes()
    for left in (0, 300, len(whole) - 1):
        made.unlink()
        damaged.write_bytes(whole[:left])
        assert is_sealed(build(small))
        assert damaged.read_bytes() == whole


def test_a_damaged_prebuilt_library_is_said_and_another_one_made(
    small: Torch, capsys: pytest.CaptureFixture[str]
) -> None:
    prebuilt = prebuild(small)
    prebuilt.write_bytes(prebuilt.read_bytes()[:100])
    assert build(small) == names_of(small).cached
    said = f"unstall: the virtual GPU that came with unstall is damaged, so it is compiled again: {prebuilt.name}\n"
    assert said in capsys.readouterr().err


_SLOW = """#!/bin/sh
# a compiler that never ends, and a child of it, as g++ has cc1plus
case "$*" in *--version*) echo slow; exit;; esac
sleep 600 &
echo $! $$ >> "$STARTED"
for last; do :; done
echo begun > "$last"
wait
"""


@pytest.fixture
def slow(small: Torch, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that does not end. Returns the file with the processes that it started."""
    compiler, started = small.root / "slow-compiler", small.root / "started"
    compiler.write_text(_SLOW)
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("STARTED", str(started))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return started


def _pids(started: Path) -> list[int]:
    return [int(word) for word in started.read_text().split()] if started.exists() else []


def _until(holds: Callable[[], bool]) -> None:
    """Waits for at most 20 seconds."""
    ends = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.02)


def _compile_in_a_child(small: Torch) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        build(small)
    except KeyboardInterrupt:
        os._exit(7)
    finally:
        os._exit(1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_compilers_end_with_their_process_and_leave_nothing(small: Torch, slow: Path, number: int) -> None:
    pid = _compile_in_a_child(small)
    folder = names_of(small).folder
    _until(lambda: len(_pids(slow)) == 4)  # both sources are compiled at once
    assert list(folder.glob("making-*/*.o"))
    os.kill(pid, number)
    os.waitpid(pid, 0)
    _until(lambda: not any(is_running(each, None) for each in _pids(slow)))
    _until(lambda: not [path for path in folder.rglob("*") if path.name != "lock" and not path.is_dir()])
    _until(lambda: not list(folder.glob("making-*")))


def test_what_was_left_by_a_machine_that_went_down_is_removed(small: Torch) -> None:
    left = names_of(small).folder / "making-left"
    left.mkdir(parents=True, mode=0o700)
    for folder in (left.parent, left.parents[1]):
        folder.chmod(0o700)
    (left / "one.o").write_text("begun")
    build(small)
    assert not left.exists()


def test_who_waits_for_the_compilers_of_another_is_told_so(
    small: Torch, slow: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = _compile_in_a_child(small)
    _until(lambda: bool(_pids(slow)))
    capfd.readouterr()
    second = _compile_in_a_child(small)
    heard = ""

    def told() -> bool:
        nonlocal heard
        heard += capfd.readouterr().err
        return "unstall: another process is compiling the virtual GPU; this process waits for it\n" in heard

    _until(told)
    for pid in (second, first):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_cache_of_another_user_is_not_used(small: Torch) -> None:
    build(small)
    os.chown(building.cache_folder(), 12345, -1)
    with pytest.raises(VirtualGpuError, match=f"not loaded from {building.cache_folder()}: it belongs to user 12345"):
        build(small)
