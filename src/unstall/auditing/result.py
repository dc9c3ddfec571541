"""The result of `audit`: plain data, and its versioned JSON form (`unstall.audit/1`). Times are int nanoseconds."""

from __future__ import annotations

import msgspec

from unstall.result import Where

SCHEMA = "unstall.audit/1"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of an entry: its place, how often, and what mending it gains.

    Attributes:
        rule: The rule that found it; "" for a wait that no finding is about.
        title: What happens, in a sentence.
        where: The line, and the operator.
        per_step: How often it happens per step, in the mean.
        is_wait: Whether the host waits for the GPU there. Waits are counted as by `unstall check`.
        wait_ns: How long the host is blocked, per step; None if it is not known.
        gain_ns: How much shorter a step gets if only this finding is mended. 0 if that is within the replay's error,
            None if it is not known.
        fix: What to do.
        safe_if: The condition under which `fix` keeps the program correct.
        wrong: Whether the program may compute a wrong result.
    """

    rule: str
    title: str
    where: Where
    per_step: float
    is_wait: bool
    wait_ns: int | None
    gain_ns: int | None
    fix: str
    safe_if: str
    wrong: bool = False


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one entry does, per step.

    Attributes:
        device: The model name of the GPU.
        torch: The version of torch.
        known_error: How far off the times of a virtual GPU are on known programs.
        steps: Number of steps that the figures are means of.
        launches: How often the host puts work on the GPU.
        copies: Number of copies between host and device.
        step_ns: How long a step takes.
        mended_ns: How long a step takes with every change of the report's plan.
        idle: Share of the time in which the GPU does nothing, from 0 to 1.
        bound_by: What bounds the entry, as in `Verdict.bound_by`.
        findings: Wrong results first, then by gain. Findings that cost nothing are left out, except waits.
        caveats: What the figures leave out, or may be wrong in, one sentence each.
    """

    device: str | None
    torch: str | None
    known_error: str | None = None
    steps: int
    launches: float
    copies: float
    step_ns: int
    mended_ns: int
    idle: float
    bound_by: str
    findings: tuple[Found, ...]
    caveats: tuple[str, ...] = ()

    @property
    def gain(self) -> float:
        """The share of a step that the plan saves, from 0 to 1."""
        return max(0.0, 1 - self.mended_ns / self.step_ns) if self.step_ns else 0.0

    @property
    def wrong(self) -> bool:
        """Whether the entry may compute a wrong result."""
        return any(found.wrong for found in self.findings)

    @property
    def waits(self) -> tuple[Found, ...]:
        """The findings that are waits."""
        return tuple(found for found in self.findings if found.is_wait)

    @property
    def waits_per_step(self) -> float:
        """How often the host waits for the GPU."""
        return sum(found.per_step for found in self.waits)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an entry has no figures.

    Attributes:
        reason: The error's first line, or a sentence that the time limit was over.
        log: The file that has all that the entry printed; None if it was not kept.
    """

    reason: str
    log: str | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: its figures, or why it has none.

    Attributes:
        entry: The name of the entry.
        took_s: How long its process ran.
        figures: None if it failed.
        failure: None if it did not fail.
    """

    entry: str
    took_s: float
    figures: Figures | None = None
    failure: Failure | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """All entries: schema `unstall.audit/1`.

    Attributes:
        schema: Name and version of this form.
        version: The version of unstall.
        gpu: The name of the virtual GPU, as the user wrote it; None for the machine's own GPU.
        rows: Entries with wrong results first, then by the share of a step that the plan saves. Failed entries last.
    """

    schema: str = SCHEMA
    version: str
    gpu: str | None
    rows: tuple[Row, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        """The entries that have no figures."""
        return tuple(row for row in self.rows if row.failure)
