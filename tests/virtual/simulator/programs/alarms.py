"""Alarms that come while the simulation is at work are raised in the program as themselves, and nothing is lost."""

import json
import signal
import sys
import time

import torch


class Alarm(BaseException):
    pass


def alarm(*_: object) -> None:
    raise Alarm("as asked")


signal.signal(signal.SIGALRM, alarm)
queries = sys.argv[1] == "queries"
event = torch.cuda.Event()
event.record()
ones = torch.ones(4, device="cuda")
ends: dict[str, int] = {}
added = 0
for number in range(8):
    signal.setitimer(signal.ITIMER_REAL, 0.15 + 0.013 * number)
    since = time.monotonic()
    try:
        while time.monotonic() - since < 3:
            ones.add_(1)
            added += 1
            event.record()
            if queries:
                event.query()
        end = "never"
    except BaseException as error:
        end = f"{type(error).__name__}: {error}"
    ends[end] = ends.get(end, 0) + 1
signal.setitimer(signal.ITIMER_REAL, 0)
torch.cuda.synchronize()
event.record()
print(json.dumps({"ends": ends, "done": event.query() in (True, False)}))
