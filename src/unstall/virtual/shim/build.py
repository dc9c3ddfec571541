"""Compiles the shim once for each build of torch. Stores the shim in the user's cache, which all environments share.

The shim's path contains hashes of everything that the shim depends on: the shim's sources, torch's headers and
libraries, Python's ABI and the flags. The compiled shim contains no folder names, so it does not matter which
environment compiled the shim. The package may also contain a compiled shim (`prebuilt/`), whose file name has the same
hashes.
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
    """Returns the cache folder of compiled shims."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unstall"


@dataclass(frozen=True)
class Names:
    """The names in the path of one compiled shim. Each name is a hash of the things that the shim depends on."""

    setting: str  # torch's build, Python's ABI, flags
    sources: str

    @property
    def folder(self) -> Path:
        return cache_folder() / f"shim-{self.setting}"

    @property
    def cached(self) -> Path:
        return self.folder / self.sources / f"_shim{_suffix()}"

    @property
    def prebuilt(self) -> Path:
        return PREBUILT / f"_shim-{self.setting}-{self.sources}{_suffix()}"


def names_of(torch: Torch) -> Names:
    """Returns the names in the path of the shim for this torch and Python."""
    setting = _hash(torch.version, torch.build(), _python(), repr(FLAGS), repr(LANGUAGE))
    texts = [text for path in [*_sources(), *_headers()] for text in (path.name, path.read_text())]
    return Names(setting[:16], _hash(*texts)[:16])


def build(torch: Torch) -> Path:
    """Returns the path of the shim for this torch and Python. Compiles the shim if neither the package nor the cache
    has it.
    """
    names = names_of(torch)
    if is_sealed(names.prebuilt):
        return names.prebuilt
    if names.prebuilt.exists():
        _say(f"the virtual GPU that came with unstall is damaged, so it is compiled again: {names.prebuilt.name}")
    return compiled(torch)


def compiled(torch: Torch) -> Path:
    """Returns the path of the shim in the cache. If the cache does not have the shim, compiles it first."""
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
    """Returns the reason why the virtual GPU cannot run on this machine, or None if the virtual GPU can run. Does not
    compile anything.
    """
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


def _headers() -> list[Path]:
    return [*sorted(SHIM.rglob("*.h")), *sorted(FRAMES.glob("*.h"))]


def _read_with(source: Path) -> list[Path]:
    """Returns the files that the compiled source depends on: the source itself, and all of the project's headers that
    the source includes directly or through other headers. The source is recompiled only if one of these files changes.
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
    """Returns a text that identifies Python's ABI. For example, Python 3.11.2 and Python 3.11.7 have the same text."""
    return _suffix() if sys.version_info.releaselevel == "final" else f"{_suffix()} {sys.version}"


def _includes(torch: Torch) -> list[Path]:
    of_torch = torch.root / "include"
    return [of_torch, of_torch / "torch" / "csrc" / "api" / "include", _python_headers(), SHIM, FRAMES]


def _compile(torch: Torch, compiler: list[str], includes: list[Path], shim: Path) -> None:
    """Compiles the missing object files and links the shim. The caller must hold the lock."""
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
    """Precompiles torch's headers in the workshop. The precompiled headers take a third of a GB. Returns the compiler
    flags for the use of the precompiled headers, or [] if the headers cannot be precompiled. During the precompilation,
    source files are compiled without precompiled headers.
    """
    header = shop.folder / TORCH_HEADERS
    shutil.copyfile(SHIM / TORCH_HEADERS, header)
    try:
        shop.make([*command, "-x", "c++-header", str(header)], header.with_name(f"{TORCH_HEADERS}.gch"))
    except (VirtualGpuError, OSError):
        return []
    return ["-include", str(header)]


def _shortened(torch: Torch) -> list[str]:
    """Returns compiler flags that shorten file paths in error messages. Error messages at run time contain the file and
    line of the C++ code.
    """
    named = {torch.root: "torch", _python_headers(): "python", FRAMES: "unstall/lines", SHIM: "unstall/virtual/shim"}
    return [f"-ffile-prefix-map={folder}={name}" for folder, name in named.items()]


def _version(compiler: list[str]) -> str:
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def _compiler() -> list[str]:
    """Returns the compiler's command and its arguments. There are arguments if CXX is, for example, "ccache g++"."""
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
    """Makes a folder that only this user can write to, because the files in the folder are executed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder == cache_folder() and folder.stat().st_uid == os.geteuid():
            return  # others may add files to it, so each file is checked separately
    _refuse_foreign(folder)


def _refuse_foreign(path: Path) -> None:
    """Raises VirtualGpuError if another user may have written the file."""
    about = path.stat()
    others = stat.S_IMODE(about.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    _refuse_foreign_owner(path)
    if others:
        raise _foreign(path, "other users may write to it")


def _refuse_foreign_owner(path: Path) -> None:
    """Raises VirtualGpuError if the file belongs to another user."""
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise _foreign(path, f"it belongs to user {owner}")


def _foreign(path: Path, why: str) -> VirtualGpuError:
    return VirtualGpuError(
        f"the virtual GPU is not loaded from {path}: {why}; remove it, or name another folder in XDG_CACHE_HOME"
    )


def _used(path: Path) -> None:
    """Marks a file as used, so that it is not deleted as stale. Does nothing if the cache is read-only."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _hash(*texts: str) -> str:
    together = hashlib.sha256()
    for text in texts:
        together.update(f"{len(text)}:{text}".encode())
    return together.hexdigest()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds a lock inside the block. So only one process compiles, and other processes wait for its results."""
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
    """Deletes compiled files that were not used for a week. Does not delete the files in `keep`."""
    for path in [*folder.glob("*.o"), *folder.glob("*/*.so")]:
        if path not in keep and time.time() - path.stat().st_mtime > STALE_S:
            path.unlink(missing_ok=True)
