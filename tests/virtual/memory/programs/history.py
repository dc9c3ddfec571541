"""A snapshot of the memory history, and what torch says of the device."""

import json

import torch

torch.cuda.memory._record_memory_history(max_entries=100, stacks="python")
x = torch.zeros(1000, device="cuda")
segment = torch.cuda.memory._snapshot()["segments"][0]
del x
trace = torch.cuda.memory._snapshot()["device_traces"][0]
freed = torch.cuda.memory._snapshot()["segments"][0]["blocks"][0]
torch.cuda.memory._record_memory_history(enabled=None)
left = len(torch.cuda.memory._snapshot()["device_traces"][0])
first = next(entry for entry in trace if entry["action"] == "alloc")["frames"][0]


def shown(frame):
    return [frame["filename"].rpartition("/")[2], frame["line"], frame["name"]]


told = {
    "trace": [[entry["action"], entry["size"]] for entry in trace],
    "frame": shown(first),
    "of blocks": [[block["state"], *map(shown, block["frames"])] for block in segment["blocks"]],
    "of the segment": list(map(shown, segment["frames"])),
    "of a freed block": freed["frames"],
    "left": left,
    "name": torch.cuda.get_device_name(),
    "capability": torch.cuda.get_device_capability(),
}
print(json.dumps(told))
