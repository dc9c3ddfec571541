"""Two blocks of virtual_gpu, and what is known of them; the last line is JSON."""

import json
import time
from collections.abc import Callable
from time import perf_counter
from typing import Any

import unstall
from unstall.errors import UsageError

MACHINES = perf_counter
told: dict[str, Any] = {}
with unstall.virtual_gpu("h200") as gpu:
    import torch
    from torch.utils.benchmark import Timer

    x = torch.zeros(1000, device="cuda")
    rounds = []
    for _ in range(6):
        before = perf_counter()
        x.add_(1).sum().item()
        rounds.append(perf_counter() - before)
        unstall.step()
    told["rounds"] = rounds
    before = time.time()
    time.sleep(0.02)
    told["slept"] = time.time() - before
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before = perf_counter()
    start.record()
    torch.cuda._sleep(1_980_000)  # 1 ms at 1.98 GHz
    end.record()
    end.synchronize()
    told["slept on the device"] = [start.elapsed_time(end) / 1e3, perf_counter() - before]
    a = torch.ones(64, 64, device="cuda")
    told["timer"] = Timer("a + a", globals={"a": a}).timeit(200).mean
    try:
        unstall.record().__enter__()
    except UsageError as error:
        told["recorded"] = str(error)
    told["within"] = [gpu.now_ns(), len(gpu.timeline().device)]
report = gpu.explain()
told["lasted"] = [gpu.now_ns(), gpu.now_ns()]
told["steps"] = [report.result.steps.count, report.result.steps.found_by]
told["device"] = [report.result.source.device, report.result.source.torch]
told["path"] = report.result.source.path
told["clock"] = perf_counter is MACHINES and time.perf_counter is MACHINES
told["after"] = x.sum().item()
told["kernels"] = len(gpu.timeline().device)
with unstall.virtual_gpu("h200") as second:
    x.add_(1)
told["second"] = len(second.timeline().device)
told["first still"] = len(gpu.timeline().device)
gpu.save("/dev/null")


def refusal(act: Callable[[], object]) -> str | None:
    try:
        act()
    except unstall.errors.UsageError as error:
        return str(error)
    return None


told["another"] = refusal(lambda: unstall.virtual_gpu("h200:2"))
told["again"] = refusal(gpu.start)
told["before"] = refusal(unstall.virtual_gpu("h200").timeline)
told["recorded after"] = refusal(unstall.record().__enter__)
print(json.dumps(told))
