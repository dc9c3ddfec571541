"""The options of `unstall run --gpu`, and the virtual GPU that they select for child processes."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from unstall.cli._commands import launcher
from unstall.errors import UsageError
from unstall.launching.children import arming_children
from unstall.virtual.options import ENVIRONMENT, HOST_CLOCKS, NUMERICS, MachineOptions, parse

_OF_REAL_GPUS = ("--recorder", "--lines", "--shapes")


def add_virtual_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a virtual GPU, in place of a real one")
    group.add_argument(
        "--gpu",
        metavar="NAME[:N]",
        help="run on a virtual GPU, such as h200. With h200:2, the program has two of them. With h200:2,1@0.8, device "
        "1 has 0.8 of the usual clock rate",
    )
    add_simulation_options(group)


def add_simulation_options(group: argparse._ActionsContainer) -> None:
    """Adds the options --numerics and --host to a parser. --numerics says what a virtual GPU
    computes. --host says how the host's own work is timed.
    """
    group.add_argument(
        "--numerics",
        choices=NUMERICS,
        help="real: compute all tensors as the CPU does (default); skip: compute only small tensors; device: round and "
        "add up as a GPU does",
    )
    group.add_argument(
        "--host",
        choices=HOST_CLOCKS,
        help="how the host's own work is timed; modelled: by a model (default); measured: on this machine; mixed: by "
        "the model, but NumPy and other work that the model lacks is measured here",
    )
    group.add_argument(
        "--warm",
        action="store_true",
        help="leave out one-time costs: the start-up of CUDA, and the first use of each operator",
    )


def options_of(args: argparse.Namespace) -> MachineOptions | None:
    """Returns the options of the virtual GPU that --gpu selects; None if --gpu is not given.

    Raises:
        UsageError: Options exclude each other.
    """
    if args.gpu is None:
        for name in ("numerics", "host", "warm"):
            if getattr(args, name):
                raise UsageError(f"--{name} needs --gpu")
        return None
    if args.recorder != "auto" or args.lines != "auto" or args.shapes:
        raise UsageError(
            "--recorder, --lines and --shapes are about a real GPU: leave them out, a virtual one knows all operators "
            "and lines by itself"
        )
    return parse(args.gpu, args.numerics or "real", args.host or "modelled", args.warm)


def command_with_gpu(args: argparse.Namespace) -> str:
    """Returns the command of the user, changed so that it runs on a virtual GPU. Options that exist
    only for a real GPU are left out.

    Under torchrun, the command has one virtual GPU for each process on this machine. torchrun's own
    options are not known, so the command has "…" in their place.
    """
    words: list[str] = args.words[1:]
    program = len(words) - len(args.program)
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    gpus = f"h200:{ranks}" if ranks.isdecimal() and ranks != "1" else "h200"
    kept = ["unstall", args.words[0], "--gpu", gpus]
    options = iter(words[:program])
    for word in options:
        name, equals, _ = word.partition("=")
        if name in ("--recorder", "--lines") and not equals:
            next(options, None)
        elif name not in _OF_REAL_GPUS:
            kept.append(word)
    return " ".join([*launcher(os.environ), shlex.join([*kept, *_without_gpu(words[program:])])])


def _without_gpu(words: Sequence[str]) -> Iterator[str]:
    """Yields the words of a program's command line. Leaves out a --gpu option and the option's value, because this
    option was meant for unstall.
    """
    rest = iter(words)
    for word in rest:
        if word == "--gpu":
            next(rest, None)
        elif not word.startswith("--gpu="):
            yield word


def get_ready(gpu: str) -> None:
    """Compiles the virtual GPU now, so that the programs that will use it do not have to. `gpu` is
    a value of the option --gpu.

    Raises:
        UnstallError: The GPU is unknown, or the virtual GPU cannot be compiled.
    """
    _build_for(parse(gpu))


def _build_for(options: MachineOptions) -> None:
    from unstall.virtual.costs.gpu_file import gpu_named
    from unstall.virtual.shim.build import build
    from unstall.virtual.shim.installed import installed_torch

    gpu_named(options.gpu)
    build(installed_torch())


@contextmanager
def virtual_gpu_for_children(options: MachineOptions) -> Iterator[None]:
    """Child processes that start during the block run on the virtual GPU. `options` says which
    virtual GPU, and how it works.

    Raises:
        UnstallError: Child processes cannot get the virtual GPU.
    """
    from unstall.virtual.machine import ARMED_BY

    _build_for(options)
    with arming_children(ARMED_BY, {ENVIRONMENT: options.to_json()}):
        yield
