"""Show what unstall can use on this machine, and what the missing parts would add.

`unstall explain` works even if all of these parts are missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

_INJECTION = "CUDA_INJECTION64_PATH"  # the driver loads this library into every program; nsys and ncu set it
_NVTX_INJECTION = "NVTX_INJECTION64_PATH"
_DRIVER = Path("/proc/driver/nvidia")


class Check(TypedDict):
    """A part of the machine that unstall can use, such as CUPTI, and whether it was found.

    Attributes:
        name: The name of the part.
        found: The version or a description of the part; None if the part was not found.
        instead: What is used in place of a part that was not found, or why the part does not work.
        enables: What unstall can do with the part.
        notes: Sentences with additional facts.
    """

    name: str
    found: str | None
    instead: NotRequired[str]
    enables: str
    notes: NotRequired[list[str]]


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    checks = examine()
    if args.json:
        import json

        document = {"schema": "unstall.doctor/1", "checks": checks}
        print(json.dumps(document, indent=1, sort_keys=True))
        return 0
    width = max(len(check["name"]) for check in checks)
    columns = shutil.get_terminal_size().columns
    for check in checks:
        mark, found = ("ok", check["found"]) if check["found"] else ("--", check.get("instead", "not found"))
        told = [str(found), *([] if check["found"] else [f"would enable: {check['enables']}"]), *check.get("notes", ())]
        head = f"{mark}  {check['name']:{width}}  "
        for text in told:
            print(_filled(text, head, columns))
            head = " " * len(head)
    return 0


def _filled(text: str, head: str, columns: int) -> str:
    """Wraps text to lines of at most `columns` characters. Does not break words such as paths. The first line begins
    with `head`.
    """
    indent = " " * len(head)
    return textwrap.fill(
        text, columns, initial_indent=head, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def examine() -> list[Check]:
    """Looks for all parts of the machine that unstall can use, such as CUPTI. Returns them in the
    order in which they are printed.
    """
    import platform
    from importlib import metadata

    from unstall._version import __version__

    def version(package: str) -> str | None:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    system = f"{platform.system()} {platform.machine()}"
    python = f"{platform.python_version()} ({system})"
    checks = [
        Check(name="unstall", found=__version__, enables=""),
        Check(name="python", found=python, enables=""),
        *(Check(name=name, found=version(name), enables="unstall itself") for name in ("numpy", "msgspec", "rich")),
        *_in_c(),
    ]
    torch = version("torch")
    seen = _probe_torch() if torch else {}
    return [*checks, *_torch(torch, seen), *_recording(torch, seen), _virtual_gpu(torch)]


def _in_c() -> list[Check]:
    """Looks for the C extensions. Does not import numpy or torch, which the callers of these extensions need."""
    engine, graphs = map(_is_built, ("unstall.replay._engine", "unstall.fix.graphs.examine._guards"))
    needs = "needs a C compiler when unstall is installed"
    return [
        Check(
            name="C engine",
            found="built" if engine else None,
            instead="not built: Python replays",
            enables=f"replays some fifty times as fast; {needs}",
        ),
        Check(
            name="C in graphed",
            found="built" if graphs else None,
            instead="not built: Python checks whether a graph is still valid",
            enables=f"checks before each replay of a graph, ten times as fast; {needs}",
        ),
    ]


def _is_built(extension: str) -> bool:
    """Returns whether the C extension with this module name is built. Imports only the packages that contain the
    extension.
    """
    from importlib.util import find_spec

    try:
        return find_spec(extension) is not None
    except ImportError:
        return False


def _torch(version: str | None, seen: Mapping[str, str]) -> list[Check]:
    built_for = Check(name="torch built for", found=seen.get("built_for"), enables="recording what a GPU does")
    if "version" in seen:
        built_for["instead"] = "CPU only"
    return [
        Check(
            name="torch",
            found=seen.get("version", version and f"{version}, but importing it fails: {seen.get('error')}"),
            enables="explaining a live torch.profiler.profile; reading its traces needs no torch",
        ),
        built_for,
        Check(name="GPU", found=seen.get("gpu") or _driver_gpus(), enables="recording what a GPU does"),
    ]


_PROBE = """
import json, torch
hip = getattr(torch.version, "hip", None)
built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {hip}" if hip else None
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
gpu = ", ".join(torch.cuda.get_device_name(i) for i in range(count)) or None
try:
    from torch.profiler import kineto_available
    kineto = "yes" if kineto_available() else None
except ImportError:
    kineto = None
print(json.dumps({"version": torch.__version__, "built_for": built, "gpu": gpu, "kineto": kineto}))
"""


def _probe_torch() -> dict[str, str]:
    """Returns torch's description of itself, or {"error": reason}.

    Asks a separate process, because a broken installation of torch may crash or hang.
    """
    import json
    import subprocess

    try:
        done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=120)
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
        found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"error": str(error)}
    return {name: text for name, text in found.items() if text}


def _driver_gpus() -> str | None:
    """Returns the names of the GPUs that nvidia-smi lists, or None. These names are shown if torch lists no GPU."""
    import shutil
    import subprocess

    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    names = ", ".join(done.stdout.split("\n")).strip(", ")
    return f"{names} (seen by the driver, not by torch)" if names else None


def _virtual_gpu(torch: str | None) -> Check:
    """Returns whether the virtual GPU (`--gpu`) works here. Compiles nothing."""
    lacks: str | None = "it needs Linux"
    if sys.platform == "linux":
        from unstall.virtual.shim.build import why_not

        lacks = why_not()
    return Check(
        name="virtual GPU",
        found=None if lacks else f"for torch {torch}",
        instead=lacks or "",
        enables="running CUDA programs on a machine without a GPU: unstall run --gpu h200",
    )


def _recording(torch: str | None, seen: Mapping[str, str]) -> list[Check]:
    is_built = _is_built("unstall.cupti._cupti")
    driver = _driver()
    library, trouble = _usable_cupti(can_load=is_built and driver is not None)
    return [
        cupti_recorder(
            is_built=is_built,
            library=library,
            trouble=trouble,
            driver=driver,
            parameters=_read(_DRIVER / "params"),
            environment=os.environ,
        ),
        torch_recorder(torch, seen, os.environ),
        source_lines(sys.version_info[:2], stacks=_no_stacks(), is_built=_is_built("unstall.lines._lines")),
    ]


def cupti_recorder(
    *,
    is_built: bool,
    library: Path | None,
    trouble: str | None,
    driver: str | None,
    parameters: str,
    environment: Mapping[str, str],
) -> Check:
    """Returns whether CUPTI can record on this machine, and everything that prevents it.

    Args:
        is_built: Whether the C extension for CUPTI is built.
        library: The path of libcupti; None if it was not found.
        trouble: Why no libcupti can be used; None if there is no reason.
        driver: The version of NVIDIA's driver; None if there is no driver.
        parameters: The text of the driver's parameters in /proc.
        environment: The environment variables.
    """
    missing = [
        None if is_built else "its C extension is not built, which takes a C compiler when unstall is installed",
        trouble or (None if library else "no libcupti was found: it comes with torch for CUDA, and the CUDA toolkit"),
        None if driver else "there is no NVIDIA driver",
        _other_profiler(environment),
    ]
    lacks = [reason for reason in missing if reason]
    notes = []
    if "RmProfilingAdminOnly: 1" in parameters:
        notes.append(
            "the driver keeps performance counters for administrators (RmProfilingAdminOnly: 1); recording needs none"
        )
    if (nvtx := environment.get(_NVTX_INJECTION)) and "libcupti" not in Path(nvtx).name:
        notes.append(f"NVTX ranges go to another tool ({_NVTX_INJECTION} is {nvtx})")
    return Check(
        name="cupti recorder",
        found=None if lacks else f"{library}, driver {driver}",
        instead="; ".join(lacks),
        enables="recording a run at next to no cost",
        notes=notes,
    )


def torch_recorder(torch: str | None, seen: Mapping[str, str], environment: Mapping[str, str]) -> Check:
    """Returns whether torch.profiler can record a GPU on this machine.

    Args:
        torch: The installed version of torch; None if torch is not installed.
        seen: Facts about torch, as a process that imported it printed them; or {"error": reason}.
        environment: The environment variables.
    """
    lacks: str | None = None
    if torch is None:
        lacks = "torch is not installed"
    elif "version" not in seen:
        lacks = "torch cannot be imported"
    elif "kineto" not in seen:
        lacks = "this torch was built without Kineto"
    elif "built_for" not in seen:
        lacks = "this torch is for CPUs only"
    elif "gpu" not in seen:
        lacks = "torch sees no GPU"
    else:
        lacks = _other_profiler(environment)
    return Check(
        name="torch recorder",
        found=None if lacks else f"torch.profiler of {seen['version']}",
        instead=lacks or "",
        enables="recording operators and shapes too, at a higher cost",
    )


def source_lines(python: tuple[int, int], *, stacks: str | None, is_built: bool) -> Check:
    """Returns how a recording on this machine finds the source line of each launch. There is always
    a way.

    Args:
        python: The version of Python.
        stacks: Why stacks cannot be read at each CUDA call; None if they can be read.
        is_built: Whether the C extension of the line clock is built. The line clock follows which
            source lines run, by sys.monitoring or sys.settrace. It is used if stacks cannot be
            read.
    """
    clock = f"{'sys.monitoring' if python >= (3, 12) else 'sys.settrace'}, in {'C' if is_built else 'Python'}"
    notes = []
    if stacks is not None:
        found = f"by {clock}"
        notes.append(f"they cannot be read at each call to CUDA, which costs least: {stacks}")
    elif python >= (3, 12):
        found = f"read at each call to CUDA; with the torch recorder by {clock}"
    else:
        found = "read at each call to CUDA; with the torch recorder by its own stacks"
    if python < (3, 12):
        notes.append("from Python 3.12 on, sys.monitoring finds lines; torch's stacks have functions only")
    if not is_built:
        notes.append("the line clock's C extension is not built: without it, following lines costs more")
    return Check(name="source lines", found=found, enables="the line behind each launch and wait", notes=notes)


def _other_profiler(environment: Mapping[str, str]) -> str | None:
    """Returns a sentence if another profiler is active in this environment, otherwise None.

    CUPTI allows only one client per process, and Kineto is a client too
    (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED).
    """
    injected = environment.get(_INJECTION)
    return f"another profiler holds CUPTI, which serves one ({_INJECTION} is {injected})" if injected else None


def _usable_cupti(*, can_load: bool) -> tuple[Path | None, str | None]:
    """Returns (library, trouble): the path of libcupti, or None; and why no libcupti can be used, or None.

    If `can_load` is set, loads the library, to check that unstall knows the format of its records.
    """
    from unstall.errors import UnstallError

    try:
        from unstall.cupti.recorder import Cupti, find_library

        library = find_library()
        if library is not None and can_load:
            Cupti(Path())  # loads the library and records nothing
        return library, None
    except UnstallError as error:
        return None, str(error)
    except Exception as error:  # the other checks are useful whatever is broken
        return None, f"looking for libcupti failed ({error})"


def _no_stacks() -> str | None:
    """Returns the reason why stacks cannot be read at each CUDA call, or None if they can be read."""
    try:
        from unstall.cupti.call_stacks import unavailable

        return unavailable()
    except Exception as error:  # as above
        return f"looking for them failed ({error})"


def _driver() -> str | None:
    """Returns the version of NVIDIA's driver, or None if programs cannot use the driver.

    Programs need libcuda. In a container, libcuda may be missing although /proc shows the driver's kernel module.
    """
    import ctypes
    import re

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = re.search(r"\d+\.\d+(\.\d+)?", _read(_DRIVER / "version"))
    return version[0] if version else "of unknown version"


def _read(path: Path) -> str:
    """Returns the text of a file, or "" if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
