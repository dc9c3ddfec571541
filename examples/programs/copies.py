"""Copies between host and device, on one stream and on two."""

from __future__ import annotations

import torch

from programs import Cause, Run, program

ROWS, COLUMNS = 2048, 4096  # 32 MiB of float32


def upload_pageable(host: torch.Tensor) -> torch.Tensor:
    return host.to("cuda")  # stalls


def upload_pageable_non_blocking(host: torch.Tensor) -> torch.Tensor:
    return host.to("cuda", non_blocking=True)  # stalls


def upload_pinned(host: torch.Tensor) -> torch.Tensor:
    return host.to("cuda")  # stalls


def upload_pinned_non_blocking(host: torch.Tensor) -> torch.Tensor:
    return host.to("cuda", non_blocking=True)


@program(also=("stacks",))
def uploads() -> Run:
    """The same 32 MiB go to the device in four ways. `non_blocking=True` changes nothing for pageable memory;
    pinned memory without it makes the host wait; only the last one lets the host go on."""
    torch.backends.cuda.matmul.allow_tf32 = True
    pageable = torch.randn(ROWS, COLUMNS)
    pinned = pageable.pin_memory()
    weight = torch.randn(COLUMNS, COLUMNS, device="cuda")

    x = pageable.to("cuda")
    ways = (
        (upload_pageable, pageable),
        (upload_pageable_non_blocking, pageable),
        (upload_pinned, pinned),
        (upload_pinned_non_blocking, pinned),
    )

    def step() -> None:
        for upload, host in ways:
            upload(host) @ weight @ weight

    def mended() -> None:
        for _ in range(4):
            upload_pinned_non_blocking(pinned) @ weight @ weight

    alone = {"device": lambda: x @ weight @ weight}
    for upload, host in ways:
        alone[upload.__name__] = lambda upload=upload, host=host: upload(host) @ weight @ weight
    causes = (
        Cause("pageable-copy", upload_pageable, "aten::to"),
        Cause("pageable-copy", upload_pageable_non_blocking, "aten::to"),
        Cause("blocking-pinned-copy", upload_pinned, "aten::to"),
    )
    return Run(step, ("copy",), causes, mended, alone)


def download_pageable(result: torch.Tensor) -> torch.Tensor:
    return result.cpu()  # stalls


def download_pinned(result: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
    return host.copy_(result)  # stalls


def download_pinned_non_blocking(result: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
    return host.copy_(result, non_blocking=True)


@program()
def downloads() -> Run:
    """32 MiB come back in three ways: into pageable memory, into pinned, and pinned without waiting."""
    torch.backends.cuda.matmul.allow_tf32 = True
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    weight = torch.randn(COLUMNS, COLUMNS, device="cuda") / 64
    host = torch.empty(ROWS, COLUMNS).pin_memory()

    def step() -> None:
        download_pageable(x @ weight)
        download_pinned(x @ weight, host)
        download_pinned_non_blocking(x @ weight, host)

    def mended() -> None:
        for _ in range(3):
            download_pinned_non_blocking(x @ weight, host)

    causes = (
        Cause("sync-cpu", download_pageable, "aten::to"),
        Cause("sync-cpu", download_pinned, "aten::copy_"),
    )
    return Run(step, ("copy",), causes, mended)


class Offloaded:
    """Eight 64 MiB layers kept in pinned memory, and the two ways to bring them to the device."""

    def __init__(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        self.weights = [(torch.randn(4096, 4096) / 64).pin_memory() for _ in range(8)]
        self.buffers = [torch.empty(4096, 4096, device="cuda") for _ in range(2)]
        self.x = torch.randn(8192, 4096, device="cuda")
        self.side = torch.cuda.Stream()

    def in_order(self) -> None:
        """Copy, compute, copy, compute: one stream, so neither runs beside the other."""
        h = self.x
        for weight in self.weights:
            h = h @ weight.to("cuda", non_blocking=True)  # stalls

    def ahead(self) -> None:
        """The next layer is copied on a second stream while this one computes."""
        main, free = torch.cuda.current_stream(), [torch.cuda.Event() for _ in self.buffers]
        for event in free:
            event.record()
        h = self.x
        for i, weight in enumerate(self.weights):
            buffer, event = self.buffers[i % 2], free[i % 2]
            with torch.cuda.stream(self.side):
                self.side.wait_event(event)
                buffer.copy_(weight, non_blocking=True)
            main.wait_event(self.side.record_event())
            h = h @ buffer
            event.record()

    def hand_in_hand(self) -> None:
        """A second stream in vain: it waits for the last product, and the next product waits for it."""
        main = torch.cuda.current_stream()
        h = self.x
        for i, weight in enumerate(self.weights):
            self.side.wait_stream(main)  # stalls
            with torch.cuda.stream(self.side):
                self.buffers[i % 2].copy_(weight, non_blocking=True)
            main.wait_stream(self.side)
            h = h @ self.buffers[i % 2]


@program()
def offload_in_order() -> Run:
    """Weights are copied from pinned memory on the stream that computes: copies and products take turns."""
    run = Offloaded()
    cause = Cause("serial-copy", Offloaded.in_order, "aten::to")
    return Run(run.in_order, ("copy",), (cause,), run.ahead)


@program()
def offload_ahead() -> Run:
    """The same, mended: copies on a second stream run beside the products. Nothing to find but the copies'
    rate."""
    return Run(Offloaded().ahead, ("device", "copy"))


@program(also=("syncs",))
def offload_hand_in_hand() -> Run:
    """Copies have a stream of their own, and never overlap, since each stream waits for the other."""
    run = Offloaded()
    cause = Cause("lonely-stream", Offloaded.hand_in_hand)
    return Run(run.hand_in_hand, ("copy",), (cause,), run.ahead)


@program()
def two_streams() -> Run:
    """Kernels of 16 blocks each on two streams: they fit beside each other, and run so. Nothing to find."""
    x = torch.randn(16, 1 << 20, device="cuda")
    left, right = torch.cuda.Stream(), torch.cuda.Stream()

    def on(stream: torch.cuda.Stream) -> None:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(10):
                x.softmax(-1)

    def step() -> None:
        on(left)
        on(right)
        torch.cuda.current_stream().wait_stream(left)
        torch.cuda.current_stream().wait_stream(right)

    return Run(step, ("device",))
