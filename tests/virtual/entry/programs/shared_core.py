"""A loop of operators, and then work in NumPy, on a core that this process shares with two others. Prints, as JSON and
in ns: for how long the program had no core in the loop, how much work of its own the virtual clock left out there, for
how long NumPy had a core, and how much of that the clock left out.
"""

import json
import os
import subprocess
import sys
import time

import unstall

real_ns, on_core_ns = time.monotonic_ns, time.thread_time_ns
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with unstall.virtual_gpu("h200", warm=True):
    import numpy as np
    import torch

    from unstall.virtual.machine import current

    machine = current()
    assert machine is not None

    def left_out_ns() -> int:
        machine.now_ns()  # simulates what is in the log
        return machine.not_charged_ns()

    x = torch.ones(8, device="cuda")
    table = np.random.default_rng(0).random(1 << 20)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for _ in range(1_000):
            x = x + 1
        before, began = left_out_ns(), real_ns() - on_core_ns()
        for _ in range(20_000):
            x = x + 1
        without_core, loop = real_ns() - on_core_ns() - began, left_out_ns() - before
        before, began = left_out_ns(), on_core_ns()
        np.sort(table)
        sorting = on_core_ns() - began
        x = x + 1
        numpy = left_out_ns() - before
    finally:
        for each in others:
            each.kill()
print(json.dumps({"without core": without_core, "loop": loop, "sorting": sorting, "numpy": numpy}))
