"""What stands around `bench`, on a virtual GPU: compare, Timer, Stopwatch. Prints JSON."""

from __future__ import annotations

import json
import sys

import unstall

with unstall.virtual_gpu("h200"):
    import torch

    from unstall.bench.virtual_machine import keeper

    x = torch.ones(1024, 1024, device="cuda")
    y = torch.ones(8, device="cuda")

    def small() -> torch.Tensor:
        return y + y

    compared = unstall.compare(
        {"mm": lambda: x @ x, "copy": lambda: x @ x, "add": lambda: x + x, "small": small}, check=False
    )
    torch.cuda.synchronize()
    machine = keeper()
    assert machine is not None
    machine.drain()
    before = machine.simulation.history.ran.length
    y = x @ x
    torch.cuda.synchronize()
    machine.drain()
    ran = machine.simulation.history.ran.whole()
    with unstall.Stopwatch("products") as products:
        for _ in range(20):
            y = x @ x
    with unstall.Stopwatch("nothing"):
        pass
    timing = unstall.Timer("x @ x", globals={"x": x}).timeit(50)
    many = unstall.compare({"mm": lambda: x @ x, "copy": lambda: x @ x}, by="throughput", check=False, max_seconds=20)
    made = unstall.compare({"ones": lambda: torch.ones(1 << 20, device="cuda")}, check=False)
    json.dump(
        {
            "by": compared.by,
            "notes": compared.notes,
            "made_by": made.by,
            "answers": [each.answer for each in compared.candidates],
            "mm_ns": compared["mm"].time.samples.tolist(),
            "ran_ns": int((ran.end[before:] - ran.start[before:]).sum()),
            "products_s": products.seconds,
            "waited_s": products.waited_seconds,
            "timer_s": timing.median,
            "throughput_ns": many["mm"].time.median,
            "throughput": many.answer,
        },
        sys.stderr,
    )
