"""torch.profiler on the virtual GPU, in several ways; the last line is JSON."""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import unstall

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step() -> None:
    x = torch.randn(32, 64).to("cuda")
    with record_function("forward"):
        loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def of_device(events: Any) -> list[Any]:
    return [event for event in events if event.device_type == DeviceType.CUDA]


told: dict[str, Any] = {}
step()
both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
with profile(activities=both, record_shapes=True, with_stack=True) as whole:
    begin.record()
    step()
    end.record()
    torch.cuda.synchronize()
events = whole.events()
on_device = of_device(events)
told["copies"] = [event.name for event in on_device if event.name.startswith("Mem")]
told["kernels"] = sum(event.activity_type == "kernel" for event in on_device)
told["annotated"] = sorted({event.name for event in on_device if event.activity_type == "gpu_user_annotation"})
told["busy_us"] = sum(event.time_range.elapsed_us() for event in on_device if event.activity_type == "kernel")
told["between events_us"] = begin.elapsed_time(end) * 1e3
addmm = [event for event in events if event.name == "aten::addmm"]
told["addmm"] = [len(addmm), len(addmm[0].kernels), addmm[0].input_shapes]
told["parents"] = [addmm[0].cpu_parent.name, addmm[0].cpu_parent.cpu_parent.name]
told["stack"] = any("profiled.py" in frame for frame in addmm[0].stack)
backward = [event for event in events if event.name.endswith("AddmmBackward0")]
told["backward"] = sorted(
    (e.sequence_nr in {a.sequence_nr for a in addmm}, e.fwd_thread > 0, e.scope) for e in backward
)
told["table"] = "aten::addmm" in whole.key_averages().table(sort_by="self_cuda_time_total")
averages = {average.key: average for average in whole.key_averages()}
told["averages"] = [averages["aten::addmm"].count, averages["aten::addmm"].device_time_total > 0]
with tempfile.TemporaryDirectory() as folder:
    for name in ("trace.json", "trace.json.gz"):
        whole.export_chrome_trace(f"{folder}/{name}")
    timeline = unstall.load(Path(folder) / "trace.json.gz")
    arrows = [e for e in json.loads(Path(folder, "trace.json").read_text())["traceEvents"] if e.get("cat") == "fwdbwd"]
told["exported"] = int((timeline.device.kind == 0).sum())

told["arrows"] = [sum(e["ph"] == phase for e in arrows) for phase in "sf"]
with profile(activities=both, profile_memory=True, record_shapes=True, with_stack=True) as of_memory:
    step()
try:
    of_memory.export_memory_timeline("memory.json", device="cuda:0")
except RuntimeError as error:
    told["memory timeline"] = str(error)

ready = []
cycles = schedule(wait=1, warmup=1, active=2, repeat=2)
with profile(activities=both, schedule=cycles, on_trace_ready=lambda p: ready.append(len(p.events()))) as scheduled:
    for _ in range(9):
        step()
        scheduled.step()
told["ready"] = len(ready)
told["marks"] = sum(event.name.startswith("ProfilerStep") for event in scheduled.events() if event.is_user_annotation)

with profile(activities=both) as toggled:
    step()
    for activity in both:
        toggled.toggle_collection_dynamic(False, [activity])
        step()
        toggled.toggle_collection_dynamic(True, [activity])
names = [event.name for event in toggled.events()]
kernels = [event for event in of_device(toggled.events()) if event.activity_type == "kernel"]
told["toggled"] = [names.count("aten::addmm"), len(kernels) / told["kernels"]]

with profile(activities=[ProfilerActivity.CPU]) as cpu_alone:
    step()
told["cpu alone"] = [len(of_device(cpu_alone.events())), any(e.name == "aten::addmm" for e in cpu_alone.events())]
with profile(activities=[ProfilerActivity.CUDA]) as cuda_alone:
    step()
names = {event.name for event in cuda_alone.events()}
told["cuda alone"] = [len(of_device(cuda_alone.events())) > 0, "aten::addmm" in names]
with torch.autograd.profiler.profile(use_device="cuda") as older:
    step()
told["older"] = {a.key: a.device_time_total for a in older.key_averages()}["aten::addmm"] > 0
product = torch.rand(4096, 4096, device="cuda")
for _ in range(3):
    product @ product
with profile(activities=both) as begun_late:
    product @ product
    torch.cuda.synchronize()
late = [event for event in of_device(begun_late.events()) if event.activity_type == "kernel"]
told["queued before"] = [len(late), sum(event.name == "aten::mm" for event in begun_late.events())]
with torch.autograd.profiler.emit_nvtx():
    step()
told["explained"] = unstall.explain(scheduled).result.steps.count
print(json.dumps(told))
