"""How long the program takes that joins a thread, and how long it does the thread's work itself."""

import json
import threading
import time

import torch

x = torch.ones(4096, 4096, device="cuda")


def work() -> None:
    for _ in range(20):
        x.mul_(1.0)
    torch.cuda.synchronize()


def joined() -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def taken(call: object) -> int:
    began = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - began


for call in (work, joined):
    call()  # first uses
print(
    json.dumps({"here": taken(work), "in a thread": [taken(joined) for _ in range(3)], "beside": taken(lambda: None)})
)
