"""An audit to render."""

from __future__ import annotations

from unstall.auditing.result import Audit, Failure, Figures, Found, Row
from unstall.result import Where

LIBRARY = "diffusers/schedulers/scheduling_euler_discrete.py"
RECIPE = "/home/ada/work/schedulers.py"
ITEM, NONZERO = ".item() waits for its value", "nonzero() waits for a count"
LAUNCH = "The device waits for the host to dispatch"


def found(line: int, title: str, gain_ns: int | None, *, file: str = LIBRARY, times: float = 1.0) -> Found:
    is_wait = title in (ITEM, NONZERO)
    return Found(
        rule="sync-item" if is_wait else "launch-bound",
        title=title,
        where=Where(file=file, line=line, line_is="exact", function="step", op="aten::item" if is_wait else None),
        per_step=times,
        is_wait=is_wait,
        wait_ns=5_000 if is_wait else 0,
        gain_ns=gain_ns,
        fix="keep it on the device",
        safe_if="nothing on the host needs it",
    )


def figures(*findings: Found, step_ns: int = 3_000_000, mended_ns: int = 3_000_000) -> Figures:
    return Figures(
        device="NVIDIA H200",
        torch="2.13.0",
        known_error="the host's times within a factor of 2",
        steps=6,
        launches=81.0,
        copies=2.5,
        step_ns=step_ns,
        mended_ns=mended_ns,
        idle=0.974,
        bound_by="launch",
        findings=findings,
    )


EULER = figures(
    found(42, LAUNCH, 2_600_000, file=RECIPE, times=81.0),
    found(660, NONZERO, 20_000),
    found(668, ITEM, 15_000, times=10.0),
    found(700, ITEM, 0, times=0.5),
    mended_ns=300_000,
)
HEUN = figures(found(668, ITEM, 90_000), mended_ns=2_910_000)
AUDIT = Audit(
    version="0.1.0",
    gpu="h200",
    rows=(
        Row(entry=f"{RECIPE}:Euler", took_s=5.1, figures=EULER),
        Row(entry=f"{RECIPE}:Heun", took_s=5.1, figures=HEUN),
        Row(entry=f"{RECIPE}:Quiet", took_s=5.1, figures=figures()),
        Row(
            entry=f"{RECIPE}:LMS",
            took_s=1.0,
            failure=Failure(reason="ImportError: scipy is missing", log="/tmp/unstall-audit-1/LMS/log.txt"),
        ),
    ),
)
