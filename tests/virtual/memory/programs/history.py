"""A snapshot of the memory history, and what torch says of the device."""

import json

import torch

torch.cuda.memory._record_memory_history(max_entries=100, stacks="python")
x = torch.zeros(1000, device="cuda")
del x
trace = torch.cuda.memory._snapshot()["device_traces"][0]
torch.cuda.memory._record_memory_history(enabled=None)
left = len(torch.cuda.memory._snapshot()["device_traces"][0])
first = next(entry for entry in trace if entry["action"] == "alloc")["frames"][0]
told = {
    "trace": [[entry["action"], entry["size"]] for entry in trace],
    "frame": [first["filename"].rpartition("/")[2], first["line"], first["name"]],
    "left": left,
    "name": torch.cuda.get_device_name(),
    "capability": torch.cuda.get_device_capability(),
}
print(json.dumps(told))
