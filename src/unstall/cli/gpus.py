"""List the GPUs that can be used as virtual ones.

Some were measured. The others are known from their data sheets, and their times are scaled from a measured GPU.
"""

from __future__ import annotations

import argparse
from typing import Any


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    listed = described()
    if args.json:
        import json

        print(json.dumps({"schema": "unstall.gpus/1", "gpus": listed}, indent=1, sort_keys=True))
        return 0
    width = max(len(gpu["name"]) for gpu in listed)
    device_width = max(len(gpu["device"]) for gpu in listed)
    for gpu in listed:
        figures = f"{gpu['total_bytes'] / 2**30:5.1f} GiB  {gpu['multiprocessors']:3d} SMs"
        source = gpu["source"] + (f", like {gpu['like']}" if gpu["like"] else "")
        print(f"{gpu['name']:{width}}  {gpu['device']:{device_width}}  {figures}  {source}")
    return 0


def described() -> list[dict[str, Any]]:
    """Returns a description of each GPU: names, memory, number of multiprocessors, and where the costs of its work come
    from.
    """
    from unstall.virtual.costs.gpu_file import gpu_named, gpu_names

    listed = []
    for name in gpu_names():
        file = gpu_named(name).file
        device = file.device
        listed.append(
            {
                "name": name,
                "device": device.name,
                "total_bytes": device.total_bytes,
                "multiprocessors": device.multiprocessors,
                "source": file.source,
                "like": file.like,
                "known_error": file.known_error,
                "note": file.note,
            }
        )
    return listed
