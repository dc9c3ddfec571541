"""A profile of nine convolutions in their first run: the host takes far longer than the GPU.

It looks as if launches were slow, and C++ would help. But the first launch of a kernel loads it, and that happens once.
"""

import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

net = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(9))).cuda()
x = torch.randn(1, 16, 64, 64, device="cuda")


@torch.no_grad()
def run(name):
    """Profiles a run, and returns how long the host worked, in ms."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        net(x)
        torch.cuda.synchronize()
    # A profile's row of a call says how long the host was in it. The wait for the GPU is no work of the host.
    rows = [row for row in seen.key_averages() if row.key != "cudaDeviceSynchronize"]
    calls = [row for row in rows if row.key.startswith("cu")]  # cudaLaunchKernel, cudaMalloc, cuLibraryLoadData …
    host = sum(row.self_cpu_time_total for row in rows) / 1e3
    longest = max(calls, key=lambda row: row.self_cpu_time_total)
    device = sum(event.device_time for event in seen.events() if event.device_type == DeviceType.CUDA) / 1e3
    print(f"{name} run: most of CUDA's time is in {longest.key}")
    in_calls = sum(row.self_cpu_time_total for row in calls) / 1e3
    print(f"{name} run, calls of CUDA: {in_calls:.3f} ms")
    print(f"{name} run, share in calls of CUDA: {100 * in_calls / host:.1f} %")
    print(f"{name} run, launches: {sum(row.count for row in calls if 'Launch' in row.key)}")
    print(f"{name} run, device busy: {device:.3f} ms")
    print(f"{name} run, work of the host: {host:.3f} ms")
    return host


first = run("first")
second = run("second")

# %% Would C++ help? All that a faster host could save of the first run is what the second run still takes.
print(f"most that a faster host could save of the first run: {100 * second / first:.2f} %")
