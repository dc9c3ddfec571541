import json
import time

import torch
from torch import nn

MIB = 1 << 20


def first(layer, images):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    before, begin = torch.cuda.memory_allocated(), time.perf_counter()
    out = layer(images)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    return seconds, (torch.cuda.max_memory_allocated() - before) / MIB, torch.cuda.memory_reserved() / MIB, out


images = torch.randn(16, 32, 64, 64, device="cuda")
layer, depthwise = nn.Conv2d(32, 64, 3, padding=1).cuda(), nn.Conv2d(32, 32, 3, groups=32).cuda()
told = {}
told["loaded"] = first(layer, images)[:3]
told["without"] = first(layer, images)[:3]
torch.backends.cudnn.benchmark = True
told["searched"] = first(layer, images)[:3]
*again, out = first(layer, images)
told["again"] = again
told["depthwise"] = first(depthwise, images)[:3]
torch.cuda.reset_peak_memory_stats()
begin = time.perf_counter()
out.sum().backward()
torch.cuda.synchronize()
told["gradients"] = [time.perf_counter() - begin, torch.cuda.max_memory_allocated() / MIB]
torch.backends.cudnn.benchmark = False
told["other shape"] = first(layer, images[:8])[:3]
graph = torch.cuda.CUDAGraph()
torch.backends.cudnn.benchmark = True
with torch.cuda.graph(graph):
    layer(images[:4])
torch.cuda.synchronize()
begin = time.perf_counter()
graph.replay()
torch.cuda.synchronize()
told["replay"] = time.perf_counter() - begin
print(json.dumps(told))
