"""What stands around `bench`, on a virtual GPU: compare, Timer, Stopwatch. Prints JSON."""

from __future__ import annotations

import json
import sys

import unstall

with unstall.virtual_gpu("h200", numerics="skip"):
    import torch

    from unstall.errors import UsageError
    from unstall.measuring.virtual_gpu import simulator

    x = torch.ones(1024, 1024, device="cuda")
    y = torch.ones(8, device="cuda")

    def small() -> torch.Tensor:
        return y + y

    compared = unstall.compare(
        {"mm": lambda: x @ x, "copy": lambda: x @ x, "add": lambda: x + x, "small": small}, check=False, by="device"
    )
    torch.cuda.synchronize()
    machine = simulator()
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
    static = y.clone()

    def eager() -> torch.Tensor:
        total = static
        for _ in range(8):
            total = torch.relu(total)
        return total

    eager()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = eager()

    def graphed() -> torch.Tensor:
        graph.replay()
        return kept

    chosen = unstall.compare({"eager": eager, "graphed": graphed})
    cold = unstall.compare({"eager": eager, "graphed": graphed}, cache="cold", check=False)
    large = unstall.compare({"mm": lambda: x @ x, "copy": lambda: x @ x}, check=False)
    mixed = unstall.compare({"mm": lambda: x @ x, "small": small}, check=False)
    tables = unstall.compare(
        {"a": lambda v: v @ v, "b": lambda v: v @ v}, inputs={"x": x, "one": x[:8, :8]}, check=False
    )
    host = unstall.compare({"a": lambda: sum(range(10)), "b": lambda: sum(range(1000))}, check=False, max_seconds=0.3)
    try:
        unstall.compare({"mm": lambda: x @ x, "sum": lambda: sum(range(10))}, check=False)
        refused = ""
    except UsageError as error:
        refused = str(error)
    many = unstall.compare({"mm": lambda: x @ x, "copy": lambda: x @ x}, by="throughput", check=False, max_seconds=20)
    made = unstall.compare({"ones": lambda: torch.ones(1 << 20, device="cuda")}, check=False)
    json.dump(
        {
            "chosen": [each.by for each in (chosen, cold, large, mixed, host, *tables)],
            "because": [each.because for each in (chosen, cold, large, mixed, host, *tables)],
            "cold": cold.notes,
            "graphed": chosen["graphed"].ratio.median,
            "host_answer": host.answer,
            "host_ns": host["a"].time.median,
            "refused": refused,
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
