"""What a replay predicts: the step time without the recorder, and what faster host code would gain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from unstall.diagnose.analyse import analyse
from unstall.diagnose.run import Run
from unstall.diagnose.verdict import IF_FREE, Freed
from unstall.figures import duration, good_to, share
from unstall.replay.engine import replay
from unstall.replay.retime import retime
from unstall.replay.steady import steady_step_ns
from unstall.result import CAVEAT, UNTRUSTED, Replay
from unstall.what_if.edits import Edit, parse
from unstall.what_if.model import Model, model
from unstall.what_if.resources import EDIT_OF, if_free
from unstall.what_if.subject import Subject
from unstall.what_if.undistort import LEAST_ERROR, USUAL_ERROR_OF

_HELPS = 0.05  # of the step
_LEFT_OUT = 0.1  # of the steps; pauses in more steps than this are not rare
_OFF = 0.05
_APART = 0.03
_REPLAY_OFF = 0.05  # the model misses something in this run: this is said first


@dataclass(frozen=True, eq=False)
class Outlook:
    """What a replay predicts for a recorded run: its step time without the recorder, and what
    changes would gain. Times are in ns per step.

    Attributes:
        model: The replay of the recorded run, and its error.
        undistorted: The run as it would be without the recorder.
        freed: How much shorter a step would be if one resource took no time.
        host_twice_step_ns: The step time if the host were twice as fast.
        host_less_step_ns: The step time after `host_less`.
        host_less: The edit that makes the host's time shorter by the usual error of its estimate.
    """

    model: Model
    undistorted: Run
    freed: Freed
    host_twice_step_ns: float
    host_less_step_ns: float
    host_less: Edit

    @property
    def usual_error(self) -> float | None:
        """The likely error of the estimated step time without the recorder, as a share of the step time.

        None if the step time without the recorder was measured, or if its estimate is too uncertain.
        """
        known = self.model
        steps = len(known.subject.steps)
        if known.undistorted_by != "usual cost" or steps < 2:
            return None
        if known.left_out_ns > _LEFT_OUT * steps * known.undistorted_step_ns:
            return None
        return round(max(LEAST_ERROR, 1 - self.host_less_step_ns / max(self.model.undistorted_step_ns, 1)), 2)

    @property
    def replay(self) -> Replay:
        """What the result says about the replay: its step time and its error."""
        return Replay(
            mean_step_ns=round(self.model.replayed_step_ns),
            error=round(self.model.error, 6),
            error_ns=round(self.model.error_ns),
            undistorted_mean_step_ns=round(self.model.undistorted_step_ns),
            undistorted_by=self.model.undistorted_by,
            usual_error=self.usual_error,
            plain_step_ns=self.model.plain_step_ns,
            left_out_ns=self.model.left_out_ns,
            device_stretch=round(self.model.device_stretch, 4),
            host_free_step_ns=round(self.model.undistorted_step_ns - self.freed.gains["host"]),
            accounts=self.undistorted.accounts,
            inferred=self.model.subject.program.notes,
        )

    @cached_property
    def doubt(self) -> Freed | None:
        """The gains under a second assumption about the recorder's overhead, if another resource
        limits the run under that assumption. None if the same resource limits it, or if the
        overhead is not estimated.

        The first assumption is that the estimated overhead is right. If the host limits the run
        under it, the second assumption is that the host is faster, by the error of the estimate. If
        another resource limits the run, the second assumption is that the recorder has no overhead.
        The result has only two gains: that of the host, and the largest gain of all other
        resources.
        """
        best, known = self.freed.best(), self.model
        if known.undistorted_by != "usual cost" or not best:
            return None
        if "host" in best:
            rest = {name: gain for name, gain in self.freed.gains.items() if name != "host"}
            other = max(rest, key=lambda name: rest[name])
            subject, step = self.host_less.apply(known.subject), self.host_less_step_ns
        else:
            other, subject = best[0], known.recorded
            step = steady_step_ns(subject.program)
        edits = {name: parse(EDIT_OF[name]) for name in ("host", other)}
        gains = {name: step - steady_step_ns(edit.apply(subject).program) for name, edit in edits.items()}
        freed = Freed(step, gains, abs(known.error) * step)
        return freed if freed.best() == ([other] if "host" in best else ["host"]) else None

    @property
    def trusted(self) -> bool:
        """Whether the replay is close enough to the recording to predict gains."""
        return abs(self.model.error) <= UNTRUSTED

    def caveat(self) -> str:
        """Returns a warning if the replayed step time differs too much from the recorded step time;
        "" if it does not. Reports show the warning before all predictions.
        """
        known = self.model
        if abs(known.error) < _REPLAY_OFF:
            return ""
        replayed, measured = duration(round(known.replayed_step_ns)), duration(round(known.measured_step_ns))
        unit, apart = known.subject.steps.unit, f"{100 * known.error:+.0f} %"
        off = f"{CAVEAT} {unit} takes {replayed}, {apart} against the recorded {measured}"
        if not self.trusted:
            return f"{off}: no gain is promised, and all figures are those of the recording."
        return f"{off}: gains, the plan and the floor may be off by as much."

    def sentences(self) -> list[str]:
        """Returns sentences on the step time without the recorder, and on what faster host code would gain."""
        known = self.model
        step, unit = known.undistorted_step_ns, known.subject.steps.unit
        said = []
        if doubt := self.doubt:
            (first,) = doubt.best()
            case = "As recorded, with all of the recorder's overhead" if first == "host" else "If recording cost more"
            said.append(
                "The verdict depends on how much recording costs, which is an estimate. "
                f"{case}, {unit} would be shorter by {doubt.share(first)} {IF_FREE[first]}."
            )
        if known.undistorted_by != "nothing":
            said.append(self._without_recorder())
        elif abs(step / max(known.replayed_step_ns, 1) - 1) >= _OFF:
            said.append(
                f"In steady state {unit} takes {duration(round(step))}; gains and the plan are relative to that."
            )
        if known.left_out_ns:
            pauses = duration(known.left_out_ns)
            said.append(f"Pauses that happened only once ({pauses}) are left out of all figures.")
        free, twice = step - self.freed.gains["host"], self.host_twice_step_ns
        if step - free < max(_HELPS * step, known.error_ns):
            most = round(max(step - free, known.error_ns))
            gain = f"at most {share(most, round(step))}" if most else "nothing"
            helps = "may or may not help" if known.error_ns > _HELPS * step else "would not help"
            said.append(f"Faster host code (C++, a faster CPU) {helps}: it would gain {gain}.")
        else:
            said.append(
                f"If host code were twice as fast (C++ instead of Python), {unit} would take {duration(round(twice))}; "
                f"if host code took no time at all, {duration(round(free))}."
            )
        return said

    def _without_recorder(self) -> str:
        known, unit = self.model, self.model.subject.steps.unit
        if known.undistorted_by == "plain step time":
            said = f"Without the recorder {unit} takes {duration(known.plain_step_ns or 0)}, as measured{self._apart()}"
            off = known.undistorted_step_ns / max(known.plain_step_ns or 0, 1) - 1
            if abs(off) >= _OFF:
                return f"{said}; the replay without the recorder's overhead is off by {100 * off:+.0f} %."
            if abs(known.device_stretch - 1) >= _OFF:
                return (
                    f"{said}; to match that, the replay changes the kernels' time by "
                    f"{100 * (known.device_stretch - 1):+.0f} %."
                )
            return f"{said}."
        step = duration(round(known.undistorted_step_ns))
        return f"Without the recorder {unit} takes about {step} (an estimate, {good_to(self.usual_error)})."

    def _apart(self) -> str:
        """Returns a text with the step times measured before and after the recording, or "" if they hardly differ.

        Gains cannot be more precise than the difference of these two times.
        """
        meta = self.model.subject.timeline.meta
        if meta.plain_steps_ns is None or self.model.plain_step_ns != meta.plain_step_ns:
            return ""
        before, after = meta.plain_steps_ns
        if abs(after - before) < _APART * min(before, after):
            return ""
        return f" ({duration(before)} before the recording, {duration(after)} after it)"


def look_ahead(run: Run, *, plain_step_ns: int | None = None, as_recorded: bool = False) -> Outlook:
    """Predicts the step time of a run without the recorder, and the gains of possible changes.

    Args:
        run: The recorded run. Its steps must have device work.
        plain_step_ns: The step time measured without recording, in ns. If None, the value stored in
            the recording is used, if there is one.
        as_recorded: Whether all times include the recorder's overhead.
    """
    known = model(run.timeline, run.steps, run.places, plain_step_ns=plain_step_ns, as_recorded=as_recorded)
    less = parse(f"host-speed:{1 / (1 - USUAL_ERROR_OF[run.timeline.meta.recorder])}")
    return Outlook(
        model=known,
        undistorted=replayed_run(run, known.subject),
        freed=freed_of(known, known.subject, known.undistorted_step_ns),
        host_twice_step_ns=steady_step_ns(parse("host-speed:2").apply(known.subject).program),
        host_less_step_ns=steady_step_ns(less.apply(known.subject).program),
        host_less=less,
    )


def freed_of(known: Model, subject: Subject, step_ns: float) -> Freed:
    """Returns, for each resource (such as the kernels or the waits), how much shorter a step would
    be if the resource took no time.

    Args:
        known: The replay of the recorded run, and its error.
        subject: The program to replay. It may already include edits.
        step_ns: The step time of `subject` in the replay, in ns.
    """
    return Freed(step_ns, if_free(subject, step_ns), known.error_ns)


def replayed_run(run: Run, subject: Subject) -> Run:
    """Replays a program. Returns the run with the times of the replay.

    Args:
        run: The recorded run.
        subject: The program of the run. It may include edits.
    """
    program = subject.program
    times = replay(program)
    gone = (program.ops.duration == 0) & (run.timeline.device.end > run.timeline.device.start)[program.ops.device]
    timeline = retime(run.timeline, program, times, subject.recorded_span, gone, subject.graphs)
    window_start, window_end = times.window(program)
    steps = replace(
        run.steps,
        start=times.end[program.step_starts],
        end=times.end[program.step_ends],
        window_start=window_start,
        window_end=window_end,
    )
    return analyse(timeline, steps=steps, places=replace(run.places, timeline=timeline))
