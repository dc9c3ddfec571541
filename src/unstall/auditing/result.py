"""`Audit`: the result of an audit, as data. Its JSON form is `unstall.audit/1`. Times are int nanoseconds."""

from __future__ import annotations

import msgspec

from unstall.result import Where

SCHEMA = "unstall.audit/1"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A problem at one line of an audited program.

    Attributes:
        rule: The name of the kind of problem, as in findings of reports; "" for a wait that no
            finding reports.
        title: A sentence that says what happens.
        where: The source line and the operator.
        per_step: How often the problem occurs per step, on average.
        is_wait: Whether the host waits for the GPU at this line. `unstall check` counts the same
            waits.
        wait_ns: How long the host is blocked per step, in ns; None if this time is not known.
        gain_ns: By how many ns a step gets shorter if only this problem is fixed. 0 if the gain is
            smaller than the error of the replay that predicts it. None if the gain is not known.
        fix: What to do about the problem.
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
    """What one audited program does per step.

    Attributes:
        device: The model name of the GPU.
        torch: The version of torch.
        known_error: A text that says how wrong the virtual GPU's times were for programs that were
            also measured on a real GPU. None for a real GPU.
        steps: Number of recorded steps. The other figures are means over these steps.
        launches: How many kernels, graphs, copies and memsets the host launches.
        copies: Number of copies between host and device.
        step_ns: How long a step takes, in ns.
        mended_ns: How long a step would take after all changes that the report's plan proposes, in
            ns.
        idle: Share of the time during which the GPU is idle, from 0 to 1.
        bound_by: What bounds the step time, as in `Verdict.bound_by`.
        findings: The problems that were found. Problems with wrong results come first, then
            problems with the largest gain. A problem that costs nothing is included only if it is a
            wait or may give wrong results.
        caveats: What the figures leave out, or why they may be wrong. One sentence each.
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
        """The share of the step time that the changes of the report's plan would save together, from 0 to 1."""
        return max(0.0, 1 - self.mended_ns / self.step_ns) if self.step_ns else 0.0

    @property
    def wrong(self) -> bool:
        """Whether the audited program may compute a wrong result."""
        return any(found.wrong for found in self.findings)

    @property
    def waits(self) -> tuple[Found, ...]:
        """Those of `findings` that are waits of the host for the GPU."""
        return tuple(found for found in self.findings if found.is_wait)

    @property
    def waits_per_step(self) -> float:
        """How often the host waits for the GPU per step."""
        return sum(found.per_step for found in self.waits)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an audited program has no figures.

    Attributes:
        reason: The first line of the error, or a sentence that says that the program exceeded its time limit.
        log: The file with all output of the program; None if the file was not kept.
    """

    reason: str
    log: str | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one audited program, or the reason why there are none.

    Attributes:
        entry: The name of the program.
        took_s: How many seconds the process of the program ran.
        figures: The figures; None if the program failed.
        failure: Why the program failed; None if it did not fail.
    """

    entry: str
    took_s: float
    figures: Figures | None = None
    failure: Failure | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit: one row for each audited program. Its JSON form is the schema
    `unstall.audit/1`.

    Attributes:
        schema: Name and version of this JSON form.
        version: The version of unstall.
        gpu: The name of the virtual GPU, as the user wrote it; None if the machine's own GPU was
            used.
        rows: The rows: first the programs with wrong results, then the other programs that ran,
            then the programs that failed. Within the first two groups, the largest `Figures.gain`
            comes first.
    """

    schema: str = SCHEMA
    version: str
    gpu: str | None
    rows: tuple[Row, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows of programs that have no figures."""
        return tuple(row for row in self.rows if row.failure)
