"""Compiles the shim against the installed torch: once for each version, kept in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
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
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from unstall import lines
from unstall.errors import UnstallError

SHIM = Path(__file__).parent
FRAMES = Path(lines.__file__).parent
OLDEST_TORCH = (2, 11)
PROVED = "2.13"
CPU_WHEEL = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
FLAGS = ("-O2", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1")
LANGUAGE = {".cpp": ("-std=c++20", "-fvisibility=hidden"), ".c": ("-x", "c", "-std=gnu11")}
STALE_S = 7 * 24 * 3600


class VirtualGpuError(UnstallError):
    """The virtual GPU cannot run here. The message says what to install."""


@dataclass(frozen=True)
class Torch:
    """The torch that this Python would import."""

    root: Path
    version: str


def installed_torch() -> Torch:
    """Find torch without importing it. Raises VirtualGpuError for a torch that the shim cannot be compiled against."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise VirtualGpuError(f"the virtual GPU needs PyTorch, which {sys.executable} does not have: {CPU_WHEEL}")
    root = Path(spec.submodule_search_locations[0])
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", (root / "version.py").read_text(), re.MULTILINE)
    version = found.group(1) if found else "of unknown version"
    if re.search(r"\+(cu|rocm|xpu)", version) or any((root / "lib").glob("libtorch_cuda*.so")):
        raise VirtualGpuError(
            f"torch {version} is built for a real GPU, whose place the virtual one cannot take; "
            f"in an environment of its own: {CPU_WHEEL}"
        )
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise VirtualGpuError(f"the virtual GPU needs torch {oldest} or newer, this is {version}: {CPU_WHEEL}")
    return Torch(root, version)


def cache_folder() -> Path:
    """Returns the cache folder of compiled shims."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unstall"


def build(torch: Torch) -> Path:
    """Returns the compiled shim for this torch and Python. Compiles it if it is not in the cache."""
    objects, shim = _results(torch)
    folder = shim.parent.parent
    try:
        if not shim.exists():
            of_torch = [torch.root / "include", torch.root / "include" / "torch" / "csrc" / "api" / "include"]
            compiler, includes = _compiler(), [*of_torch, _python_headers(), SHIM, FRAMES]
            for each in (cache_folder(), folder, shim.parent):
                _make_own(each)
            with _locked(folder):
                if not shim.exists():
                    _compile(torch, compiler, includes, objects, shim)
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
    """Returns why the virtual GPU cannot run here, or None if it can. Compiles nothing."""
    try:
        torch = installed_torch()
        if not _results(torch)[1].exists():
            _compiler()
            _python_headers()
    except (VirtualGpuError, OSError) as error:
        return str(error)
    return None


def _results(torch: Torch) -> tuple[dict[Path, Path], Path]:
    """Returns the paths of the results for this torch and Python: an object file for each source, and the shim."""
    sources = [*sorted(SHIM.glob("*.cpp")), FRAMES / "_frames.c"]
    headers = [*sorted(SHIM.rglob("*.h")), FRAMES / "_frames.h"]
    setting = _hash(torch.version, str(torch.root), sys.version, repr(FLAGS), repr(LANGUAGE))
    shared = _hash(*(header.read_text() for header in headers))
    folder = cache_folder() / f"shim-{setting[:16]}"
    objects = {source: folder / f"{source.stem}-{_hash(shared, source.read_text())[:16]}.o" for source in sources}
    linked = _hash(*(each.name for each in objects.values()))[:16]
    shim = folder / linked / f"_shim{sysconfig.get_config_var('EXT_SUFFIX')}"
    return objects, shim


def _compile(torch: Torch, compiler: list[str], includes: list[Path], objects: dict[Path, Path], shim: Path) -> None:
    """Compiles the missing objects and links the shim. The caller must hold the lock."""
    missing = [source for source, result in objects.items() if not result.exists()]
    said = f"unstall: compiling the virtual GPU for torch {torch.version}, once: {len(missing)} files …"
    print(said, file=sys.stderr, flush=True)
    for result in objects.values():
        if result.exists():
            _refuse_foreign(result)
            _used(result)

    def compile_one(source: Path) -> None:
        flags = [*LANGUAGE[source.suffix], *FLAGS, *_shortened(torch), *(f"-I{each}" for each in includes)]
        _run([*compiler, *flags, "-c", str(source)], objects[source])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, compiled in enumerate(as_completed([pool.submit(compile_one, source) for source in missing]), 1):
            compiled.result()  # or its error
            _tell_progress(done, len(missing))
    _run([*compiler, "-shared", *map(str, objects.values())], shim)
    _forget_stale(shim.parent.parent, keep={*objects.values(), shim})


def _tell_progress(done: int, files: int) -> None:
    """Says how many files are compiled: on a terminal in one line, else at each tenth of them."""
    if sys.stderr.isatty():
        print(f"\r\x1b[Kunstall: compiled {done} of {files}", end="\n" * (done == files), file=sys.stderr, flush=True)
    elif done * 10 // files > (done - 1) * 10 // files:
        print(f"unstall: compiled {done} of {files}", file=sys.stderr, flush=True)


def _shortened(torch: Torch) -> list[str]:
    """Returns flags that shorten file paths in errors at run time, which name their line of C++."""
    named = {torch.root: "torch", FRAMES: "unstall/lines", SHIM: "unstall/virtual/shim"}
    return [f"-ffile-prefix-map={folder}={name}" for folder, name in named.items()]


def _compiler() -> list[str]:
    """Returns the compiler's command and arguments. CXX may be "ccache g++"."""
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
    """Make a folder that only this user can write to, since its contents are executed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder == cache_folder() and folder.stat().st_uid == os.geteuid():
            return  # others may add files to it, so each file is checked separately
    _refuse_foreign(folder)


def _refuse_foreign(path: Path) -> None:
    """Raise VirtualGpuError if another user may have written the file."""
    about = path.stat()
    others = stat.S_IMODE(about.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    if about.st_uid == os.geteuid() and not others:
        return
    whose = "others may write to it" if about.st_uid == os.geteuid() else f"it belongs to user {about.st_uid}"
    raise VirtualGpuError(
        f"the virtual GPU is not loaded from {path}: {whose}; remove it, or name another folder in XDG_CACHE_HOME"
    )


def _used(path: Path) -> None:
    """Mark a file as used, so that it is not deleted as stale; a cache may be read-only."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _run(command: list[str], result: Path) -> None:
    """Run a compiler. The result appears whole or not at all."""
    partial = result.with_name(f".{os.getpid()}-{result.name}")
    done = subprocess.run([*command, "-o", str(partial)], capture_output=True, text=True, check=False)
    if done.returncode:
        partial.unlink(missing_ok=True)
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-500:])
        raise VirtualGpuError(f"compiling the virtual GPU failed (it is known to compile for torch {PROVED}): {first}")
    partial.chmod(0o700)  # whatever the umask
    partial.replace(result)


def _hash(*texts: str) -> str:
    together = hashlib.sha256()
    for text in texts:
        together.update(f"{len(text)}:{text}".encode())
    return together.hexdigest()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds a lock, so that one process compiles and others wait for its results."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_stale(folder: Path, keep: set[Path]) -> None:
    """Deletes results of older sources that were not used for a week."""
    for path in [*folder.glob("*.o"), *folder.glob("*/*.so")]:
        if path not in keep and time.time() - path.stat().st_mtime > STALE_S:
            path.unlink(missing_ok=True)
