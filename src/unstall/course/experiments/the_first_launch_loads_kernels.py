"""Three profiles in which launches seem to be slow, for three reasons, and a fourth for comparison.

A first run loads kernels. Long kernels fill the queue of launches, so that each launch waits for room. Tiny kernels
end before the host has launched the next one.
"""

import time

import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

net = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(9))).cuda()
x = torch.randn(1, 16, 64, 64, device="cuda")
large, tiny = torch.ones(2**24, device="cuda"), torch.ones(5, device="cuda")


@torch.no_grad()
def run(name, function, times=1):
    """Profiles calls of a function, and returns how long the host worked, in ms."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        begin = time.perf_counter()
        for _ in range(times):
            function()
        torch.cuda.synchronize()
        whole = (time.perf_counter() - begin) * 1e3
    # A profile's row of a call says how long the host was in it. The wait for the GPU is no work of the host.
    rows = [row for row in seen.key_averages() if row.key != "cudaDeviceSynchronize"]
    calls = [row for row in rows if row.key.startswith("cu") or row.key == "Command Buffer Full"]  # cudaLaunchKernel, …
    host, in_calls = (sum(row.self_cpu_time_total for row in of) / 1e3 for of in (rows, calls))
    launches = sum(row.count for row in calls if "Launch" in row.key)
    device = sum(event.device_time for event in seen.events() if event.device_type == DeviceType.CUDA) / 1e3
    print(f"{name}: most of CUDA's time is in {max(calls, key=lambda row: row.self_cpu_time_total).key}")
    print(f"{name}, share in calls of CUDA: {100 * in_calls / host:.1f} %")
    print(f"{name}, CUDA per launch: {in_calls / launches * 1e3:.1f} us")
    print(f"{name}, device busy, of the time: {100 * device / whole:.1f} %")
    return host


first = run("first run", lambda: net(x))
second = run("second run", lambda: net(x))

# %% Would C++ help? All that a faster host could save of the first run is what the second run still takes.
print(f"most that a faster host could save of the first run: {100 * second / first:.2f} %")

# %% An operator whose kernels are loaded, on 64 MiB and on 20 bytes.
for name, of in (("full queue", large), ("tiny kernels", tiny)):
    of.neg_()
    run(name, of.neg_, times=3000)
