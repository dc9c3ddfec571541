"""Compiles the shim (the C++ part of the virtual GPU) once for each build of torch, and keeps it in
a cache of the user.

The path of the compiled shim has hashes of all that its content depends on: the sources of the
shim, torch's headers and libraries, Python's ABI, and the flags. It has no names of folders in it,
so all Python environments of the user can share it. The package may bring a compiled shim of its
own in `prebuilt/`; the name of that file has the same hashes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from unstall import lines
from unstall.virtual.shim.installed import Torch, VirtualGpuError, installed_torch
from unstall.virtual.shim.progress import Progress
from unstall.virtual.shim.sealed import is_sealed
from unstall.virtual.shim.workshop import Workshop, workshop

SHIM = Path(__file__).parent
FRAMES = Path(lines.__file__).parent
PREBUILT = SHIM / "prebuilt"
# NDEBUG as torch is built: otherwise its headers assert on data that only a debug build of torch keeps.
FLAGS = ("-O2", "-fPIC", "-DNDEBUG", "-D_GLIBCXX_USE_CXX11_ABI=1")
LANGUAGE = {".cpp": ("-std=c++20", "-fvisibility=hidden"), ".c": ("-x", "c", "-std=gnu11")}
TORCH_HEADERS = "torch_headers.h"
_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
STALE_S = 7 * 24 * 3600


def cache_folder() -> Path:
    """Returns the folder of the user's cache in which compiled shims are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unstall"


@dataclass(frozen=True)
class Names:
    """The two hashes in the path of a compiled shim.

    Attributes:
        setting: The hash of torch's build, Python's ABI and the compiler's flags.
        sources: The hash of the shim's sources and headers.
    """

    setting: str
    sources: str

    @property
    def folder(self) -> Path:
        """The folder in the cache for all shims with the same `setting`."""
        return cache_folder() / f"shim-{self.setting}"

    @property
    def cached(self) -> Path:
        """The path of the compiled shim in the cache."""
        return self.folder / self.sources / f"_shim{_suffix()}"

    @property
    def prebuilt(self) -> Path:
        """The path of the compiled shim in the package. The file need not exist."""
        return PREBUILT / f"_shim-{self.setting}-{self.sources}{_suffix()}"


def names_of(torch: Torch) -> Names:
    """Returns the hashes in the path of the shim that is compiled for `torch` and this Python."""
    setting = _hash(torch.version, torch.build(), _python(), repr(FLAGS), repr(LANGUAGE))
    texts = [
        text
        for path in [*_sources(), *sorted(SHIM.rglob("*.h")), *sorted(FRAMES.glob("*.h"))]
        for text in (path.name, path.read_text())
    ]
    return Names(setting[:16], _hash(*texts)[:16])


def build(torch: Torch) -> Path:
    """Returns the path of the shim that is compiled for `torch` and this Python. Compiles it first
    if neither the package nor the cache has it.

    Raises:
        VirtualGpuError: The shim cannot be compiled, or the cache cannot be used.
    """
    names = names_of(torch)
    if is_sealed(names.prebuilt):
        return names.prebuilt
    if names.prebuilt.exists():
        _say(f"the virtual GPU that came with unstall is damaged, so it is compiled again: {names.prebuilt.name}")
    return compiled(torch)


def compiled(torch: Torch) -> Path:
    """Returns the path, in the cache, of the shim that is compiled for `torch` and this Python.
    Compiles it first if the cache does not have it.

    Raises:
        VirtualGpuError: The shim cannot be compiled, or the cache cannot be used.
    """
    names = names_of(torch)
    folder, shim = names.folder, names.cached
    try:
        if not is_sealed(shim):
            compiler, includes = _compiler(), _includes(torch)
            for each in (cache_folder(), folder, shim.parent):
                _make_own(each)
            with _locked(folder):
                if not is_sealed(shim):
                    _compile(torch, compiler, includes, shim)
        _refuse_foreign_owner(cache_folder())
        for each in (folder, shim.parent, shim):
            _refuse_foreign(each)
    except OSError as error:
        raise VirtualGpuError(
            f"the virtual GPU is compiled once and kept in {cache_folder()}, which cannot be used: {error}; "
            "make it writable, or name another folder in XDG_CACHE_HOME"
        ) from error
    _used(shim)
    return shim


def why_not() -> str | None:
    """Returns why the virtual GPU cannot run on this machine, or None if it can. Compiles nothing."""
    try:
        torch = installed_torch()
        names = names_of(torch)
        if not is_sealed(names.prebuilt) and not is_sealed(names.cached):
            _compiler()
            _python_headers()
    except (VirtualGpuError, OSError) as error:
        return str(error)
    return None


def _sources() -> list[Path]:
    return [*sorted(SHIM.glob("*.cpp")), FRAMES / "_frames.c"]


def _read_with(source: Path) -> list[Path]:
    """Returns the files on which the compilation of `source` depends: `source` itself, and all
    headers of this project that it includes, directly or through other headers.
    """
    found = {source: None}
    for path in (waiting := [source]):
        for name in _INCLUDE.findall(path.read_text()):
            for header in (folder / name for folder in (path.parent, SHIM, FRAMES)):
                if header.is_file() and header not in found:
                    found[header] = None
                    waiting.append(header)
    return list(found)


def _suffix() -> str:
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def _python() -> str:
    """Returns a text that identifies Python's ABI. Python 3.11.2 and Python 3.11.7 have the same text, for example."""
    return _suffix() if sys.version_info.releaselevel == "final" else f"{_suffix()} {sys.version}"


def _includes(torch: Torch) -> list[Path]:
    of_torch = torch.root / "include"
    return [of_torch, of_torch / "torch" / "csrc" / "api" / "include", _python_headers(), SHIM, FRAMES]


def _compile(torch: Torch, compiler: list[str], includes: list[Path], shim: Path) -> None:
    """Compiles those source files whose object files are missing, and links the shim. The caller
    must hold the lock of the folder.

    Args:
        torch: The torch for which the shim is compiled.
        compiler: The compiler's command and its first arguments.
        includes: The folders with headers.
        shim: The path for the shim.
    """
    folder = shim.parent.parent
    by = [_version(compiler), *compiler[1:]]
    objects = {
        source: folder / f"{source.stem}-{_hash(*by, *(each.read_text() for each in _read_with(source)))[:16]}.o"
        for source in _sources()
    }
    missing = [source for source, result in objects.items() if not is_sealed(result)]
    for source, result in objects.items():
        if source not in missing:
            _refuse_foreign(result)
            _used(result)
    flags = [*FLAGS, *_shortened(torch), *(f"-I{each}" for each in includes)]
    title = f"compiling the virtual GPU, once for this build of torch ({torch.version})"
    workers = len(os.sched_getaffinity(0))
    with (
        Progress(title, len(missing)) as progress,
        ThreadPoolExecutor(workers) as pool,
        workshop(folder) as shop,  # its compilers end before the pool waits for them
    ):
        command = [*compiler, *LANGUAGE[".cpp"], *flags]
        headers = pool.submit(_precompile, command, shop) if len(missing) > 2 * workers else None

        def compile_one(source: Path) -> None:
            progress.begins(source.name)
            ready = headers.result() if headers and headers.done() and source.suffix == ".cpp" else []
            shop.make([*compiler, *LANGUAGE[source.suffix], *flags, *ready, "-c", str(source)], objects[source])
            progress.ends(source.name)

        try:
            list(pool.map(compile_one, sorted(missing, key=lambda source: -source.stat().st_size)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        shop.make([*compiler, "-shared", *map(str, objects.values())], shim)
    _forget_stale(folder, keep={*objects.values(), shim})


def _precompile(command: list[str], shop: Workshop) -> list[str]:
    """Precompiles torch's headers into the workshop (the temporary folder of the compilers). They
    take a third of a GB there.

    Args:
        command: The compiler's command with its flags.
        shop: The workshop.

    Returns:
        The compiler flags that make it use the precompiled headers. An empty list if the headers
        cannot be precompiled.
    """
    header = shop.folder / TORCH_HEADERS
    shutil.copyfile(SHIM / TORCH_HEADERS, header)
    try:
        shop.make([*command, "-x", "c++-header", str(header)], header.with_name(f"{TORCH_HEADERS}.gch"))
    except (VirtualGpuError, OSError):
        return []
    return ["-include", str(header)]


def _shortened(torch: Torch) -> list[str]:
    """Returns compiler flags that shorten the paths of source files in the compiled shim. These
    paths are shown in error messages of the C++ code.
    """
    named = {torch.root: "torch", _python_headers(): "python", FRAMES: "unstall/lines", SHIM: "unstall/virtual/shim"}
    return [f"-ffile-prefix-map={folder}={name}" for folder, name in named.items()]


def _version(compiler: list[str]) -> str:
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def _compiler() -> list[str]:
    """Returns the path of the compiler, and the arguments that the variable CXX gives it, if any:
    CXX can be "g++ -pipe", for example.
    """
    named = os.environ.get("CXX") or "g++"
    try:
        command = shlex.split(named)
    except ValueError as error:
        raise VirtualGpuError(f"CXX={named!r} is no command: {error}") from error
    found = shutil.which(command[0]) if command else None
    if found is None:
        raise VirtualGpuError(
            f"the virtual GPU is compiled on first use, which needs a C++ compiler: {named} was not found; "
            "install it (Debian, Ubuntu: apt install g++) or name another in CXX"
        )
    return [found, *command[1:]]


def _python_headers() -> Path:
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        raise VirtualGpuError(
            f"compiling the virtual GPU needs Python's headers, which are not in {include}: install python3-dev"
        )
    return include


def _make_own(folder: Path) -> None:
    """Makes a folder to which only this user can write, because files in it are going to be loaded
    and run. Raises VirtualGpuError if the folder exists and others can write to it. In the cache
    folder itself they may, as long as it belongs to this user.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder == cache_folder() and folder.stat().st_uid == os.geteuid():
            return  # others may add files to it, so each file is checked separately
    _refuse_foreign(folder)


def _refuse_foreign(path: Path) -> None:
    """Raises VirtualGpuError if another user may have written the file or folder `path`."""
    about = path.stat()
    others = stat.S_IMODE(about.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    _refuse_foreign_owner(path)
    if others:
        raise _foreign(path, "other users may write to it")


def _refuse_foreign_owner(path: Path) -> None:
    """Raises VirtualGpuError if the file or folder `path` belongs to another user."""
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise _foreign(path, f"it belongs to user {owner}")


def _foreign(path: Path, why: str) -> VirtualGpuError:
    return VirtualGpuError(
        f"the virtual GPU is not loaded from {path}: {why}; remove it, or name another folder in XDG_CACHE_HOME"
    )


def _used(path: Path) -> None:
    """Sets the modification time of a file to now, so that it is not deleted as unused. Does
    nothing if the cache is read-only.
    """
    with contextlib.suppress(OSError):
        os.utime(path)


def _hash(*texts: str) -> str:
    together = hashlib.sha256()
    for text in texts:
        together.update(f"{len(text)}:{text}".encode())
    return together.hexdigest()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the lock of `folder` inside the block. So only one process compiles into the folder,
    and others wait until it has finished.
    """
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is compiling the virtual GPU; this process waits for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be closed
        print(f"unstall: {text}", file=sys.stderr, flush=True)


def _forget_stale(folder: Path, keep: set[Path]) -> None:
    """Deletes the compiled files in `folder` that were not used for a week, except those in `keep`."""
    for path in [*folder.glob("*.o"), *folder.glob("*/*.so")]:
        if path not in keep and time.time() - path.stat().st_mtime > STALE_S:
            path.unlink(missing_ok=True)
