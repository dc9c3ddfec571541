"""Where calls within an annotation are: at their own lines, not at that of the annotation."""

import json

import torch

from unstall.virtual.log import LogCode
from unstall.virtual.machine import current


def work() -> None:
    with torch.profiler.record_function("annotated"):
        first = torch.ones(1000, device="cuda")
        second = first * 2
        del first
        second += 1
        torch.cuda.synchronize()


simulator = current().simulator
work()
simulator.drain()
begin = simulator.simulation.history.happened.length
work()
simulator.drain()
happened = simulator.simulation.history.happened.whole()
places = {}
for code, stack in zip(happened.code[begin:].tolist(), happened.stack[begin:].tolist(), strict=True):
    if code in (LogCode.MARK_BEGIN, LogCode.FREE, LogCode.SYNC_DEVICE):
        places.setdefault(LogCode(code).name, []).append(simulator.place_of(stack).partition(":")[2])


def range_ns(annotation: object) -> int:
    """How long a range of nothing takes on the virtual clock, the second time."""
    for _ in range(2):
        before = simulator.here_ns()
        with annotation:
            pass
        taken = simulator.here_ns() - before
    return taken


class NvtxRange:
    def __enter__(self) -> None:
        torch.cuda.nvtx.range_push("range")

    def __exit__(self, *_: object) -> None:
        torch.cuda.nvtx.range_pop()


costs = simulator.costs.host
ns = {"record_function": range_ns(torch.profiler.record_function("range")), "nvtx": range_ns(NvtxRange())}
print(json.dumps(places | {"ns": ns, "host": {"mark": costs.mark, "nvtx": costs.nvtx, "bytecode": costs.bytecode}}))
