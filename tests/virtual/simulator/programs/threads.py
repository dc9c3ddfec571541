"""What a thread other than the first reads off its clocks."""

import json
import threading
import time

import torch

there = torch.ones(4, device="cuda")
facts: dict[str, float] = {}


def other() -> None:
    facts["begins_after"] = time.perf_counter() - begun
    before = time.perf_counter()
    time.sleep(0.5)
    facts["slept"] = time.perf_counter() - before
    before, polls = time.time(), 0
    while time.time() - before < 0.2 and polls < 50:
        time.sleep(0.05)
        polls += 1
    facts["polls"] = polls
    done = torch.cuda.Event()
    torch.cuda._sleep(200_000_000)
    done.record()
    facts["done_at_once"] = done.query()
    time.sleep(0.3)
    facts["done_after_its_sleep"] = done.query() and torch.cuda.current_stream().query()


torch.cuda._sleep(200_000_000)
torch.cuda.synchronize()
begun = time.perf_counter()
thread = threading.Thread(target=other)
thread.start()
thread.join()
print(json.dumps(facts))
