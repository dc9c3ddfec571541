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
print(json.dumps(places))
