"""Two threads and two tasks, one guarded and one not, all of which wait; and threads of autograd."""

import asyncio
import threading

import torch
from telling import counted, refused, show

import unstall

x = torch.randn(64, 64, device="cuda", requires_grad=True)


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient.sum().item()
        return gradient


def wait():
    x.detach().sum().item()


def backward():
    Reads.apply(x).sum().backward()


def two_threads():
    both, counts = threading.Barrier(2), {}

    def guarded():
        with unstall.no_sync("count") as guard:
            both.wait()
            for _ in range(20):
                wait()
            both.wait()
        counts["guarded"] = guard.count

    def free():
        both.wait()
        for _ in range(20):
            wait()
        counts["free"] = "ran"
        both.wait()

    threads = [threading.Thread(target=run) for run in (guarded, free)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


def one_is_refused():
    both, outcome = threading.Barrier(2), {}

    def guarded():
        def run():
            both.wait()
            wait()

        outcome["guarded"] = refused(run)

    def free():
        both.wait()
        wait()
        outcome["free"] = None

    threads = [threading.Thread(target=run) for run in (guarded, free)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome


async def two_tasks(act):
    async def guarded():
        with unstall.no_sync("count") as guard:
            for _ in range(3):
                await asyncio.sleep(0)
                act()
        return guard.count

    async def free():
        for _ in range(3):
            act()
            await asyncio.sleep(0)
        return unstall.guarding.regions.is_guarded()

    return await asyncio.gather(guarded(), free())


def allowed():
    with unstall.allow_sync("a test"):
        backward()


class Allows(Reads):
    @staticmethod
    def backward(ctx, gradient):
        with unstall.allow_sync("a test"):
            return Reads.backward(ctx, gradient)


masked = x[torch.ones(64, 64, dtype=torch.bool, device="cuda")].sum()
backward()
with unstall.no_sync("count") as guard:
    masked.backward()
of_torch = [[wait.code, wait.operator] for wait in guard.waits]

show(
    two_threads=two_threads(),
    one_is_refused=one_is_refused(),
    two_tasks=asyncio.run(two_tasks(wait)),
    two_tasks_with_backward=asyncio.run(two_tasks(backward)),
    backward=[kind for kind, _ in counted(backward)],
    refused=refused(backward),
    allowed=refused(allowed),
    allowed_in_backward=refused(lambda: Allows.apply(x).sum().backward()),
    after=counted(lambda: None),
    of_torch=of_torch,
    gradient=counted(lambda: torch.autograd.grad(Reads.apply(x).sum(), x))[0][0],
)
