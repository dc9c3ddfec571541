"""What this machine has, and what the rest would be good for.

Explaining a trace needs none of what may be missing here.
"""

from __future__ import annotations

import argparse
import sys
from typing import NotRequired, TypedDict


class Check(TypedDict):
    """One thing looked for: its version or what it is, or None and what there is instead, and what it is needed for."""

    name: str
    found: str | None
    instead: NotRequired[str]
    enables: str


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
    for check in checks:
        mark, found = ("ok", check["found"]) if check["found"] else ("--", check.get("instead", "not found"))
        print(f"{mark}  {check['name']:{width}}  {found}")
        if not check["found"]:
            print(f"    {'':{width}}  would enable: {check['enables']}")
    return 0


def examine() -> list[Check]:
    """Everything looked for, in order."""
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
        _engine(),
    ]
    return checks + _torch(version("torch"))


def _engine() -> Check:
    """Looked for without importing numpy, which the engine's callers need and this verb does not."""
    from importlib.util import find_spec

    built = find_spec("unstall.replay._engine") is not None
    return Check(
        name="C engine",
        found="built" if built else None,
        instead="not built: Python replays",
        enables="replays some fifty times as fast; needs a C compiler when unstall is installed",
    )


def _torch(version: str | None) -> list[Check]:
    seen = _probe_torch() if version else {}
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
print(json.dumps({"version": torch.__version__, "built_for": built, "gpu": gpu}))
"""


def _probe_torch() -> dict[str, str]:
    """What torch says of itself, from a process of its own: a broken installation may crash or hang."""
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
    """The GPUs that the driver knows, where torch does not."""
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
