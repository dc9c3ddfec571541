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
side = torch.cuda.Stream()


def measure(label, run):
    torch.cuda.synchronize()  # waits
    begin = time.perf_counter()
    run()
    returned = time.perf_counter() - begin
    torch.cuda.synchronize()  # waits
    done = time.perf_counter() - begin
    print(f"{label} returns after: {returned * 1e3:.3f} ms\n{label} is done after: {done * 1e3:.3f} ms")


def both():
    there.copy_(pinned, non_blocking=True)
    with torch.cuda.stream(side):
        back.copy_(result, non_blocking=True)


# %% Pageable memory goes through a pinned buffer of the driver, piece by piece, and the host waits for that.
there.copy_(pinned, non_blocking=True)  # the first copy takes longer
measure("upload, pageable", lambda: there.copy_(pageable))  # waits
measure("upload, pageable and non_blocking", lambda: there.copy_(pageable, non_blocking=True))  # waits
measure("upload, pinned", lambda: there.copy_(pinned))  # waits
measure("upload, pinned and non_blocking", lambda: there.copy_(pinned, non_blocking=True))
measure("download, pageable and non_blocking", lambda: pageable.copy_(result, non_blocking=True))  # waits
measure("download, pinned and non_blocking", lambda: pinned.copy_(result, non_blocking=True))
# %% Each direction has a copy engine. Copies of two streams use both at once.
measure("both directions", both)
# %% A kernel may read pinned memory itself ("mapped"): over the link, at the speed of a copy, each time.
where = {"shape": pinned.shape, "typestr": "<f4", "data": (pinned.data_ptr(), False), "version": 3}
mapped = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=where), device="cuda")
there.sum(), there.sum()  # the first two calls load and choose kernels
measure("sum of the GPU's memory", there.sum)
measure("sum of mapped memory", mapped.sum)
# %% Each copy moves its bytes once, on the current stream. (Uploads of up to 64 KiB do not wait, even if pageable.)
with profile() as recorded:
    there[:8].copy_(pageable[:8], non_blocking=True)
    there[:8].copy_(pinned[:8], non_blocking=True)
with tempfile.TemporaryDirectory() as folder:
    trace = Path(folder) / "trace.json"
    recorded.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
copies = [event["args"] for event in events if event.get("cat") == "gpu_memcpy"]
print(f"bytes of two copies: {sum(copy['bytes'] for copy in copies):,} bytes")
print(f"streams of two copies: {len({copy['stream'] for copy in copies})}")
