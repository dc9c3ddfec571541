"""A loop that waits, as a guard counts it, and as the report of the same run finds it."""

from collections import Counter

import torch
from telling import show

import unstall

torch.manual_seed(0)
x = torch.randn(512, 512, device="cuda")
batch = torch.randn(512, 512)
for _ in range(8):
    batch.to("cuda") @ x
torch.empty(20 << 20, dtype=torch.uint8, device="cuda")
STEPS = 10
with unstall.virtual_gpu("h200") as part, unstall.no_sync("count") as guard:
    for step in range(STEPS):
        unstall.step()
        y = batch.to("cuda")
        for _ in range(20):
            y = y @ x
        if y.sum() > 0:
            y = -y
        loss = y.sum().item()
        chosen = y[y > 0]
        torch.cuda.synchronize()
        if step == 5:
            grown = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    unstall.step()

counted, lasted = Counter(), Counter()
for wait in guard.waits:
    counted[f"{wait.line} {wait.rule}"] += 1
    lasted[f"{wait.line} {wait.rule}"] += wait.duration_ns
findings = [finding for finding in part.explain().findings if finding.wait_ns]
show(
    counted=counted,
    lasted_ns={place: ns // STEPS for place, ns in lasted.items()},
    found={f"{finding.where.line} {finding.rule}": finding.count for finding in findings},
    found_ns={f"{finding.where.line} {finding.rule}": finding.wait_ns for finding in findings},
)
