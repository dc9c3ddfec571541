"""Options of a process group over NCCL; the last line is JSON."""

import json

import torch.distributed as dist
from torch.distributed import distributed_c10d

told = {"has it": [hasattr(module, "ProcessGroupNCCL") for module in (dist, distributed_c10d)]}
try:
    dist.ProcessGroupNCCL.Options()
except AttributeError as error:
    told["options"] = str(error)
try:
    _ = dist.nothing
except AttributeError as error:
    told["another"] = str(error)
print(json.dumps(told))
