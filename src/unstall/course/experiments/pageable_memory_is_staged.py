"""`non_blocking=True` lets the host go on only if its memory is pinned. Lines that wait end in `# waits`."""

import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.profiler import profile

pageable = torch.randn(4096, 2048)
pinned, back = pageable.pin_memory(), pageable.pin_memory()
there, result = torch.randn(2, 4096, 2048, device="cuda")
streams, copied = (torch.cuda.current_stream(), torch.cuda.Stream()), torch.cuda.Event()
few, few_there = pageable[0, :16], there[0, :16]


def measure(label, *runs):
    torch.cuda.synchronize()  # waits
    begin = time.perf_counter()
    for run, stream in zip(runs, streams, strict=False):
        with torch.cuda.stream(stream):
            run()
    print(f"{label} returns after: {(time.perf_counter() - begin) * 1e3:.3f} ms")
    torch.cuda.synchronize()  # waits
    print(f"{label} is done after: {(time.perf_counter() - begin) * 1e3:.3f} ms")


# %% Pageable memory goes through a pinned buffer of the driver, piece by piece, and the host waits for that.
there.copy_(pinned, non_blocking=True)  # the first copy takes longer
measure("upload, pageable", lambda: there.copy_(pageable))  # waits
measure("upload, pageable and non_blocking", lambda: there.copy_(pageable, non_blocking=True))  # waits
measure("upload, pinned", lambda: there.copy_(pinned))  # waits
measure("upload, pinned and non_blocking", lambda: there.copy_(pinned, non_blocking=True))
measure("download, pageable and non_blocking", lambda: pageable.copy_(result, non_blocking=True))  # waits
measure("download, pinned and non_blocking", lambda: pinned.copy_(result, non_blocking=True))
measure("both directions", lambda: there.copy_(pinned, non_blocking=True), lambda: back.copy_(result, True))
# %% Behind a kernel, 64 bytes wait for it. With non_blocking, they do not, even if pageable: nor do up to 64 KiB.
measure("64 bytes, pageable", lambda: (torch.cuda._sleep(1_000_000), few_there.copy_(few)))  # waits
measure("64 bytes, pageable and non_blocking", lambda: (torch.cuda._sleep(1_000_000), few_there.copy_(few, True)))
# %% Pinning copies on the host, and takes pinned memory from the system if none is left from before.
measure("pin_memory(), new memory", pageable.pin_memory)
measure("pin_memory(), memory used again", pageable.pin_memory)
# %% A pinned source may be written once its copy has ended. If it is written earlier, new values may arrive.
for wait, when in ((torch.cuda.Event, "at once"), (copied.synchronize, "after event.synchronize()")):
    pinned.fill_(1), torch.cuda._sleep(1_000_000)  # earlier work of the GPU, for which the copy has to wait
    there.copy_(pinned, non_blocking=True), copied.record()
    wait()  # waits
    pinned.zero_()
    print(f"source zeroed {when}, old values that arrive: {there.count_nonzero().item()}")  # waits
# %% A kernel may read pinned memory itself ("mapped"): over the link, at the speed of a copy, each time.
where = {"shape": pinned.shape, "typestr": "<f4", "data": (pinned.data_ptr(), False), "version": 3}
mapped = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=where), device="cuda")
there.sum(), there.sum()  # the first two calls load and choose kernels
measure("sum of mapped memory", mapped.sum)
# %% Each copy moves its bytes once, on the current stream.
with profile() as recorded:
    there[:8].copy_(pageable[:8], non_blocking=True), there[:8].copy_(pinned[:8], non_blocking=True)
recorded.export_chrome_trace(trace := f"{tempfile.mkdtemp()}/trace.json")
events = json.loads(Path(trace).read_text())["traceEvents"]
copies = [event["args"] for event in events if event.get("cat") == "gpu_memcpy"]
print(f"bytes of two copies: {sum(copy['bytes'] for copy in copies):,} bytes")
print(f"streams of two copies: {len({copy['stream'] for copy in copies})}")
