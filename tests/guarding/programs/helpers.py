"""unstall's own helpers in a guarded loop, after they were called before."""

import torch
from telling import refused, show

import unstall

x = torch.randn(64, 64, device="cuda")
model = torch.nn.Linear(64, 64).cuda()
graphed = unstall.graphed(model)
losses = unstall.MetricBuffer()
batches = [torch.randn(64, 64) for _ in range(6)]


def with_graphs():
    with torch.no_grad():
        graphed(x)


def with_prefetch():
    for batch in unstall.prefetch(batches):
        batch * 2


def with_metrics():
    for _ in range(10):
        losses.add(loss=x.sum())


def with_to_host():
    value = unstall.to_host(x.sum())
    while not value.done():
        x @ x
    value.result()


def reads_too_early():
    torch.cuda._sleep(50_000_000)
    unstall.to_host(x.sum()).result()


helpers = {
    "graphed": with_graphs,
    "prefetch": with_prefetch,
    "MetricBuffer": with_metrics,
    "to_host": with_to_host,
    "to_host, read too early": reads_too_early,
}
for helper in helpers.values():
    for _ in range(2):
        helper()
refused_capture = refused(with_graphs)
outcomes = {name: [refused(helper) for _ in range(5)] for name, helper in helpers.items()}
show(outcomes=outcomes, refused_capture=refused_capture, replays=graphed.stats().hits)
