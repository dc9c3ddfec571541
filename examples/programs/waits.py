"""Lines that make the host wait for the device."""

from __future__ import annotations

import io
from functools import partial

import torch
from torch import nn

from programs import Cause, Run, program

SINK = io.StringIO()


def work(x: torch.Tensor, products: int = 3) -> torch.Tensor:
    """About 0.2 ms of matrix product each on an H200; returns one row."""
    y = x
    for _ in range(products):
        y = y @ x
    return y[0]


def read_item(row: torch.Tensor) -> float:
    return row[0].item()  # stalls


def read_cpu(row: torch.Tensor) -> torch.Tensor:
    return row.cpu()  # stalls


def read_numpy(row: torch.Tensor) -> object:
    return row.float().cpu().numpy()  # stalls


def read_list(row: torch.Tensor) -> object:
    return row[:4].tolist()  # stalls


def show(row: torch.Tensor) -> None:
    print(row[:4], file=SINK)  # stalls


def branch(row: torch.Tensor) -> None:
    if row[0] > 1e6:  # stalls
        raise ValueError("diverged")


def find_nonzero(row: torch.Tensor) -> torch.Tensor:
    return (row > 0).nonzero()  # stalls


def select_by_mask(row: torch.Tensor) -> torch.Tensor:
    return row[row > 0]  # stalls


def find_unique(row: torch.Tensor) -> torch.Tensor:
    return row.unique()  # stalls


def compare(row: torch.Tensor) -> bool:
    return torch.equal(row, row + 1)  # stalls


def make_tensors(row: torch.Tensor) -> torch.Tensor:
    total = row[0]
    for scale in (0.5, 1.0, 2.0):
        total = total + torch.tensor(scale, device="cuda")  # stalls
    return total


def check_norm(parameters: list[nn.Parameter], row: torch.Tensor) -> None:
    nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)  # stalls


def read_norm(parameters: list[nn.Parameter], row: torch.Tensor) -> float:
    return nn.utils.clip_grad_norm_(parameters, 1.0).item()  # stalls


def scale_step(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, row: torch.Tensor) -> None:
    scaler.step(optimizer)  # stalls
    scaler.update()


def wait_device(row: torch.Tensor) -> None:
    torch.cuda.synchronize()  # stalls


def wait_stream(row: torch.Tensor) -> None:
    torch.cuda.current_stream().synchronize()  # stalls


def wait_event(row: torch.Tensor) -> None:
    done = torch.cuda.Event()
    done.record()
    done.synchronize()  # stalls


@program(also=("stacks", "syncs"))
def waits() -> Run:
    """The host waits in seventeen ways, one function each, every time for 0.6 ms of queued matrix products.
    After each the device idles until the host has launched the next product."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64
    parameters = [nn.Parameter(torch.randn(64, 64, device="cuda")) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.SGD(parameters, lr=1e-6)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(torch.ones((), device="cuda"))

    kinds = (
        (read_item, "sync-item", "aten::item"),
        (read_cpu, "sync-cpu", "aten::to"),
        (read_numpy, "sync-cpu", "aten::to"),
        (read_list, "sync-cpu", "aten::to"),
        (show, "sync-print", None),
        (branch, "sync-bool", "aten::is_nonzero"),
        (find_nonzero, "sync-nonzero", "aten::nonzero"),
        (select_by_mask, "sync-mask", "aten::index"),
        (find_unique, "sync-shape", "aten::_unique2"),
        (compare, "sync-equal", "aten::equal"),
        (make_tensors, "sync-tensor", "aten::to"),
        (check_norm, "sync-clip-grad", "aten::is_nonzero"),
        (read_norm, "sync-item", "aten::item"),
        (scale_step, "sync-grad-scaler", "aten::item"),
        (wait_device, "sync-explicit", None),
        (wait_stream, "sync-explicit", None),
        (wait_event, "sync-explicit", None),
    )
    first = {
        check_norm: (parameters,),
        read_norm: (parameters,),
        scale_step: (scaler, optimizer),
    }
    calls = {f.__name__: partial(f, *first.get(f, ())) for f, _, _ in kinds}

    def step() -> None:
        for wait in calls.values():
            wait(work(x))

    causes = tuple(Cause(finding, function, op) for function, finding, op in kinds)
    alone = {"no wait": lambda: work(x)} | {n: lambda w=w: w(work(x)) for n, w in calls.items()}
    return Run(step, ("device", "sync"), causes, alone=alone)


@program(steps=4, also=("syncs",))
def wait_behind() -> Run:
    """The host waits for the step before this one: it is held back, and the device never idles for it."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64
    done = [torch.cuda.Event()]

    def step() -> None:
        work(x, 20)
        done.append(torch.cuda.Event())
        done[-1].record()
        done.pop(0).synchronize()  # stalls

    return Run(step, ("device",), (Cause("sync-explicit", step, costs=False),), mended=lambda: work(x, 20))
