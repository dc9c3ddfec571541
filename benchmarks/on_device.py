"""What benchmarks of a GPU share: why they are skipped, what their figures are of, and how a virtual one runs."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path


def why_skipped(*packages: str) -> str | None:
    """What is missing of these packages, torch and a CUDA device; None if nothing is."""
    missing = [name for name in ("torch", *packages) if find_spec(name) is None]
    if missing:
        return f"skipped: it needs {', '.join(missing)}"
    import torch

    return None if torch.cuda.is_available() else "skipped: there is no CUDA device"


def measured_on() -> dict[str, object]:
    """The device and versions that figures are of, and the day."""
    import torch

    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def on_virtual(gpu: str, *program: str) -> list[str]:
    """The command that runs a program on a virtual GPU, without the values of large tensors."""
    return [sys.executable, "-W", "ignore", "-m", "unstall.virtual", "--gpu", gpu, "--numerics", "skip", *program]


def comparing(about: str | None) -> argparse.ArgumentParser:
    """The options of a benchmark that runs on a real GPU and on a virtual one, and compares the figures."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--against", type=Path, help="the results of a real GPU, to compare with")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    return parser


def tell(about: str | None, figures: Callable[[], Mapping[str, object]]) -> None:
    """The command line of a benchmark that only measures: prints its figures as JSON, with what they are of, and writes
    them to the file of `--out`. Without a CUDA device it says why there are none."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE")
    out = parser.parse_args().out
    if skipped := why_skipped():
        print(skipped)
        return
    text = json.dumps({**measured_on(), **figures()}, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")
