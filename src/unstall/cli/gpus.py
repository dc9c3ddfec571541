"""List the GPUs that can be used as virtual ones, or show where one GPU's figures were taken from, and their accuracy.

Some were measured. The others are known from their data sheets, and their times are scaled from a measured GPU.
"""

from __future__ import annotations

import argparse
from typing import Any


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="one of these GPUs, or a .json file that unstall calibrate wrote"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    from unstall.virtual.costs.gpu_file import gpu_names

    listed = [described(name) for name in ([args.name] if args.name else gpu_names())]
    if args.json:
        import json

        print(json.dumps({"schema": "unstall.gpus/1", "gpus": listed}, indent=1, sort_keys=True))
    elif args.name:
        _show(listed[0])
    else:
        _list(listed)
    return 0


def described(name: str) -> dict[str, Any]:
    """Returns a description of a GPU that can be used as a virtual one.

    It has the GPU's names, its memory and its number of multiprocessors. It says where the costs of
    the GPU's work come from, and where each part of the GPU's file comes from.

    Args:
        name: The name of the GPU, or the path of its file.

    Raises:
        UsageError: The GPU is unknown.
    """
    from unstall.virtual.costs.gpu_file import gpu_named
    from unstall.virtual.costs.origins import PARTS

    gpu = gpu_named(name)
    file, device = gpu.file, gpu.file.device
    return {
        "name": gpu.name,
        "device": device.name,
        "total_bytes": device.total_bytes,
        "multiprocessors": device.multiprocessors,
        "source": file.source,
        "like": file.like,
        "known_error": file.known_error,
        "note": file.note,
        "parts": [
            {"part": part, "kind": origin.kind, "of": origin.of, "known_error": origin.known_error}
            for part in PARTS
            if (origin := file.origins.get(part))
        ],
    }


def _list(listed: list[dict[str, Any]]) -> None:
    width = max(len(gpu["name"]) for gpu in listed)
    device_width = max(len(gpu["device"]) for gpu in listed)
    for gpu in listed:
        print(f"{gpu['name']:{width}}  {gpu['device']:{device_width}}  {_figures(gpu)}")


def _figures(gpu: dict[str, Any]) -> str:
    source = gpu["source"] + (f", like {gpu['like']}" if gpu["like"] else "")
    return f"{gpu['total_bytes'] / 2**30:5.1f} GiB  {gpu['multiprocessors']:3d} SMs  {source}"


def _show(gpu: dict[str, Any]) -> None:
    import shutil

    columns = shutil.get_terminal_size().columns
    print(f"{gpu['name']}  {gpu['device']}  {_figures(gpu)}")
    for text in (gpu["note"], f"Known error: {gpu['known_error']}"):
        print("\n".join(_wrapped(text, columns)))
    rows = [(each["part"], f"{each['kind']}: {each['of']}", each["known_error"] or "-") for each in gpu["parts"]]
    if not rows:
        print("The file does not say where its parts come from: it was made by an older `unstall calibrate`.")
        return
    print()
    first = max(len(part) for part, _, _ in rows)
    left = max(columns - first - 4, 40)
    widths = (first, left * 3 // 5, left - left * 3 // 5)
    for row in [("part", "where it comes from", "known error"), *rows]:
        _print_row(row, widths)
    print("\n- means that it was compared with nothing.")


def _print_row(row: tuple[str, str, str], widths: tuple[int, int, int]) -> None:
    """Prints a row of the table. Texts that are wider than their column continue in the next lines."""
    from itertools import zip_longest

    cells = [_wrapped(text, width) for text, width in zip(row, widths, strict=True)]
    for line in zip_longest(*cells, fillvalue=""):
        print("  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip())


def _wrapped(text: str, width: int) -> list[str]:
    """Returns the lines of a text. A figure and its "%" stay in one line."""
    import textwrap

    return [line.replace("\u00a0", " ") for line in textwrap.wrap(text.replace(" %", "\u00a0%"), width)]
