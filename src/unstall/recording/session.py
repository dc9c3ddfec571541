"""Records a running program in its steady state. A session has four phases: it warms up, times
steps, records steps, and times steps again.

The program's step boundaries drive the session. The session changes its phase only at boundaries of
one source, such as one optimizer. The session never raises an exception into the program. If the
recording fails, the session ends, and the program continues.

The session writes these entries to the journal (the recording's file of events), in addition to
those of `RecordedWindow`. `at` is the time of an entry in ns of perf_counter:

    phase         phase: warmup, plain_before, recording, plain_after; by: the kind of the boundaries, None
                  while unknown
    mark          kind, step: boundary number `step` of the recorded window. Step i is between boundaries i and i + 1;
                  the first step in the window is for warm-up. thread: the system's id of the thread
    loop_end      a loop has ended, and with it the step that began at the last boundary before
    recorded      by, steps: whole steps recorded, without those for warm-up; settling: number of warm-up steps
    plain         which: before or after; steps; host_ns, device_ns: per step; marks_ns: host times of the boundaries
    waiting       why: the reason why the recording does not begin yet
    failed        why: a sentence
    over          why: done, exit, failed or profiler; phase: the phase in which the session ended; steps: number of
                  boundaries of the leading source; torch: whether the program imported torch; cuda: whether CUDA was
                  initialised;
                  failed_for_cuda: whether the program ends with an error about CUDA
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from unstall.guest import active, device
from unstall.guest.step_source import AT_THE_END, FORWARD, LOADER, StepSource
from unstall.recording.by_time import ByTime
from unstall.recording.counted_steps import CountedSteps
from unstall.recording.first_steps import FirstSteps
from unstall.recording.journal import Journal
from unstall.recording.plain import LEAST_STEPS, PlainSteps
from unstall.recording.settings import Settings
from unstall.recording.stopping import Stopping
from unstall.recording.turn import Turn
from unstall.recording.watching import Watching
from unstall.recording.window import MakeLineClock, MakeRecorder, RecordedWindow, give_up

_LAST_READ_S = 2.0  # wait for the device to reach the last timed step, when the program ends
BY_TIME = "time"


_NO_STEP = "recorder {} begins only at a step, and none has come: call unstall.step() at the end of each"


class Phase(enum.Enum):
    """The phases of a recording of a program's steady state, in order."""

    WARMUP = "warmup"
    PLAIN_BEFORE = "plain_before"
    RECORDING = "recording"
    PLAIN_AFTER = "plain_after"
    OVER = "over"


class Session:
    """Records a few steps of a program, after the program has warmed up.

    `begin` prepares the recording. Calls of `step_boundary` from any thread advance the recording.
    `end` ends the recording.
    """

    under_way = active.RECORDING

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        make_recorder: MakeRecorder,
        make_line_clock: MakeLineClock = lambda: None,
        *,
        first_steps: FirstSteps | None = None,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.phase = Phase.WARMUP
        self._settings = settings
        self._journal = journal
        self._make_recorder = make_recorder
        self._make_line_clock = make_line_clock
        self._first_steps = first_steps
        self._now = now
        self._begun_ns = now()
        self._turn = Turn(self._may_stop_here)
        self._steps = CountedSteps()
        self._watching = Watching(
            self.step_boundary, self._give_way, self._cuda_begins, on_loop_end=self.loop_ended, failed=self._fail
        )
        self._by_time = ByTime(
            settings.after_s,
            settings.for_s,
            passed_s=lambda: (self._now() - self._begun_ns) / 1e9,
            is_wanted=self._waits_for_a_boundary,
            may_begin=self._may_begin,
            begin=self.start_by_time,
            end=self.stop_by_time,
        )
        self._chosen: StepSource | None = None
        self._plain = PlainSteps(journal)
        self._window: RecordedWindow | None = None
        self._window_ns = 0
        self._boundary = 0
        self._loop_end_ns: int | None = None  # after the last boundary of the window
        self._said: set[str] = set()
        self._stopping = Stopping(settings)
        self.seen = False
        """Whether the program has made any step boundary."""

    def begin(self) -> None:
        """Makes this the only active recording of the process. Begins to look for step boundaries
        when torch is imported.

        Raises:
            UsageError: Another recording is active.
        """
        active.activate(self)
        try:
            self._journal.write("phase", phase=self.phase.value, by=None)
            self._watching.begin()
        except Exception as error:
            self._fail(error)

    def step_boundary(self, kind: str, who: int = 0) -> None:
        """Notes that a step begins or ends. What sets step boundaries (an optimizer, a loader, a
        model) calls this method.

        Never raises, except SystemExit if the program is to end after the recording (`--stop`).

        Args:
            kind: The kind of the caller, such as an optimizer.
            who: A number that distinguishes the caller from others of the same kind.
        """
        if self.phase is Phase.OVER and not self._stopping.pending:
            return
        with self._turn.if_free() as free:
            if free:
                self._boundary_here(StepSource(kind, who))
        if self._stopping.may_end_here:
            if self.phase is Phase.OVER:  # otherwise the end of the program ends the recording too
                self._leave()
            self._stopping.end_here()

    def loop_ended(self, kind: str, who: int) -> None:
        """Notes that a loop has ended, and its last step with it. The arguments are those of
        `step_boundary`. Never raises.
        """
        if self.phase is Phase.OVER:
            return
        with self._turn.if_free() as free:
            if free:
                try:
                    self._end_loop(StepSource(kind, who), self._now())
                except Exception as error:
                    self._fail(error)

    def end(self, why: str) -> None:
        """Ends the recording, whatever its phase, and keeps what was recorded. `why` is the reason,
        for the journal (the recording's file of events). Never raises.
        """
        with self._turn.to_end(why):
            try:
                self._end(why)
            except Exception as error:
                self._fail(error)

    def forked(self) -> None:
        """Stops the recording in a forked child process. Does not touch files of the parent process."""
        self.phase = Phase.OVER
        self._stopping.cancel()
        if self._first_steps is not None:
            self._first_steps.forked()
        if self._window is not None:
            self._window.forked()  # first, because it wrapped functions after the hooks did
        with suppress(Exception):
            self._watching.end()
        self._journal.close()

    def start_by_time(self) -> bool:
        """Starts to record if no step boundary has come. The thread of a timer (`ByTime`) calls
        this method.

        Returns whether a recording has begun. If it has, the timer must call `stop_by_time` later.
        """
        if not self._waits_for_a_boundary():  # asked before, too: during our turn a boundary is lost
            return False
        with self._turn.waited_for():
            return self._waits_for_a_boundary() and self._begin_by_time()

    def stop_by_time(self) -> None:
        """Ends the running recording: the one that `start_by_time` began, or the one of what the
        program does before its first step.
        """
        if self.phase is Phase.RECORDING and self._chosen is None:
            self.end("done")
        elif self._waits_for_a_boundary():
            with self._turn.waited_for():
                if self._waits_for_a_boundary():
                    self._end_first_steps_by_time()

    def _begin_by_time(self) -> bool:
        try:
            if self._settings.by_torch:
                self._wait_for(_NO_STEP.format("torch"))
                if self._first_steps is not None:
                    self._first_steps.begin(at_a_step=False)  # their stand-in
                return True
            self._end_first_steps_by_time()
            window = self._make_window()
            if not window.any_thread:
                self._wait_for(_NO_STEP.format(window.name))
                return False
            self._start(window, BY_TIME)
        except Exception as error:
            self._fail(error)
            return False
        return True

    def _end_first_steps_by_time(self) -> None:
        if self._first_steps is not None:  # a thread of our own must not query the device
            self._first_steps.end("time", wait=lambda: None)

    def _waits_for_a_boundary(self) -> bool:
        return self.phase is Phase.WARMUP and not self.seen

    def _cuda_begins(self) -> None:
        begun = False
        with self._turn.if_free() as free:
            if free and self.phase is Phase.WARMUP:
                if self._by_time.is_due:  # at once, else the work of a short program would be over
                    begun = self._begin_by_time()
                elif self._first_steps is not None and not self._watching.own_profiler_is_on:
                    self._first_steps.begin(at_a_step=False)
        self._by_time.start(begun=begun)

    def _end(self, why: str) -> None:
        if self.phase is Phase.RECORDING and self._window is not None:  # otherwise another thread is ending it
            self._stop(why)
            self._enter(Phase.PLAIN_AFTER)
        if self.phase is Phase.PLAIN_AFTER:
            self._conclude(why, wait_s=_LAST_READ_S)
        elif self.phase is not Phase.OVER:
            if self.phase is Phase.PLAIN_BEFORE:
                with suppress(Exception):  # after a fault the device cannot be asked
                    self._plain.cut()
                    self._plain.keep(_LAST_READ_S)
            self._over(why)
        elif why != "done":  # the program ends before `--stop` has ended it
            self._stopping.cancel()
            self._leave()

    def _give_way(self) -> None:
        """Ends the recording because the program's own torch.profiler begins. Only one profiler can run at a time."""
        if self.phase is Phase.OVER:
            return
        with self._turn.to_end("profiler"):
            self._turn.asked_to_end = None
            try:
                self._make_way()
            except Exception as error:
                self._fail(error)

    def _make_way(self) -> None:
        if self.phase is Phase.RECORDING:
            self._end("profiler")
        elif self.phase is Phase.PLAIN_AFTER:
            self._end("done")
        elif self.phase is not Phase.OVER:
            if self._first_steps is not None:
                self._first_steps.end("profiler")
            self._plain.spoil()  # it slows the steps

    def _may_stop_here(self) -> bool:
        windows = (self._window, self._first_steps)
        return all(window is None or window.may_stop_here for window in windows)

    def _boundary_here(self, source: StepSource) -> None:
        try:
            self.seen = True
            self._take(source, self._now())
        except Exception as error:
            self._fail(error)

    def _take(self, source: StepSource, at_ns: int) -> None:
        begins = source.kind in (LOADER, FORWARD)
        if device.capturing() or (begins and not device.may_be_in_use()):
            return  # a graph capture runs nothing yet, and a query of the device would invalidate it
        may_train = begins and device.grad_enabled()
        first = self._steps.add(source, may_train=may_train)
        self._stopping.count(self._steps, source)
        if self.phase is Phase.WARMUP:
            if not self._goes_on_with_first_steps(source, at_ns, may_train):
                self._warm_up(source, at_ns)
        elif self.phase is Phase.PLAIN_BEFORE:
            self._time_before(source, at_ns, first)
        elif self.phase is Phase.RECORDING:
            self._record(source, at_ns)
        elif self.phase is Phase.PLAIN_AFTER:
            self._time_after(source, at_ns)

    def _goes_on_with_first_steps(self, source: StepSource, at_ns: int, may_train: bool) -> bool:
        if self._first_steps is None:
            return False
        return self._first_steps.goes_on(source, at_ns, may_train=may_train, asked_to_end=self._turn.asked_to_end)

    def _warm_up(self, source: StepSource, at_ns: int) -> None:
        if source != self._steps.leader(source):
            return
        self._steps.note_proofs(source)
        after_s = self._settings.after_s
        if after_s is not None:
            warm = at_ns - self._begun_ns >= after_s * 1e9
        else:
            warm = self._steps.since_proof(source) >= max(1, self._settings.warmup + (source.kind not in AT_THE_END))
        if not warm or not self._may_begin():
            return
        self._chosen = source
        self._watching.follow(source)
        self._plain.begin("before", at_ns, by_count=self._stopping.by_count)
        self._enter(Phase.PLAIN_BEFORE)

    def _time_before(self, source: StepSource, at_ns: int, first: bool) -> None:
        assert self._chosen is not None
        proved = source == self._chosen and self._steps.proved()
        again = proved and self._steps.begin_again(source)
        if proved and not again:
            self._plain.spoil()
        if again or (first and self._steps.leader(source) == source) or self._steps.silent(self._chosen):
            self._warm_up_again()
        elif source == self._chosen and self._plain.add(at_ns, max(LEAST_STEPS, self._settings.steps)):
            if self._may_begin():
                self._start(self._make_window(), source.kind, at_ns)
            else:
                self._warm_up_again()

    def _record(self, source: StepSource, at_ns: int) -> None:
        if self._chosen is None:
            return
        if self._window is None:  # Ctrl-C came as the window ended, and the program continued
            self._enter(Phase.PLAIN_AFTER)
            return
        if self._turn.asked_to_end is not None and self._window.may_stop_here:
            self._end(self._turn.asked_to_end)
            return
        if source == self._chosen:
            self._boundary += 1
            if self._boundary == 1:
                self._window.warmed_up()
                at_ns = self._window_ns = self._now()  # starting may take longer than all of --for
            self._write_boundary(at_ns, source.kind)
            self._loop_end_ns = None
            for_s = self._settings.for_s
            enough = self._boundary > self._settings.steps if for_s is None else at_ns - self._window_ns >= for_s * 1e9
        else:
            enough = self._steps.silent(self._chosen)
        if enough and self._window.may_stop_here:
            self._stop()
            self._enter(Phase.PLAIN_AFTER)

    def _time_after(self, source: StepSource, at_ns: int) -> None:
        if source == self._chosen and not self._plain.finished:
            proved = self._steps.proved()
            if self._plain.begun:
                if proved:
                    self._plain.spoil()
                self._plain.add(at_ns)
            else:  # the step that refills the device's queue is left out
                self._plain.begin("after", at_ns, by_count=self._stopping.by_count)
        if self._chosen is None or self._steps.silent(self._chosen) or self._plain.arrived:
            self._conclude("done")
        elif self._settings.stop and self._plain.finished:  # the program ends here
            self._conclude("done", wait_s=_LAST_READ_S)

    def _end_loop(self, source: StepSource, at_ns: int) -> None:
        if self.phase is Phase.WARMUP and self._first_steps is not None:
            self._first_steps.loop_ended(source, at_ns)
        if source != self._chosen:
            return
        if self.phase is Phase.RECORDING:
            self._journal.write("loop_end", at=at_ns)
            self._loop_end_ns = at_ns
        else:
            self._plain.loop_ended(at_ns)

    def _may_begin(self) -> bool:
        if self._watching.own_profiler_is_on:
            self._wait_for("the program's own torch.profiler is on")
            return False
        return True

    def _warm_up_again(self) -> None:
        self._chosen = None
        self._plain.drop()
        self._watching.follow(None)
        self.phase = Phase.WARMUP

    def _make_window(self) -> RecordedWindow:
        recorder = self._make_recorder()
        return RecordedWindow(self._journal, recorder, self._make_line_clock())

    def _start(self, window: RecordedWindow, by: str, at_ns: int | None = None) -> None:
        window.start()
        self._window = window
        self._window_ns = self._now()
        self._enter(Phase.RECORDING, by)
        if at_ns is not None:
            self._write_boundary(self._window_ns, by)

    def _write_boundary(self, at_ns: int, kind: str) -> None:
        self._journal.write("mark", at=at_ns, kind=kind, step=self._boundary, thread=threading.get_native_id())

    def _stop(self, why: str = "done") -> None:
        assert self._window is not None
        window, self._window = self._window, None
        wait = device.synchronize if why == "done" else device.wait_to_leave
        # A thread of our own must not query the device: another may be capturing a CUDA graph.
        with self._turn.writing():
            window.stop(wait if why != "done" or self._chosen is not None else lambda: None)
        by = self._chosen.kind if self._chosen is not None else BY_TIME
        if self._loop_end_ns is not None:  # the last step is whole
            self._boundary += 1
            self._write_boundary(self._loop_end_ns, by)
        warmup = min(self._boundary, 1)
        self._journal.write("recorded", by=by, steps=self._boundary - warmup, settling=warmup, why=why)
        self._plain.keep()

    def _conclude(self, why: str, wait_s: float = 0.0) -> None:
        self._plain.keep(wait_s)
        self._over(why)

    def _enter(self, phase: Phase, by: str | None = None) -> None:
        if self.phase is Phase.OVER:
            return
        self.phase = phase
        kind = self._chosen.kind if self._chosen is not None else by
        self._journal.write("phase", phase=phase.value, by=kind)

    def _wait_for(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            self._journal.write("waiting", why=why)

    def _fail(self, error: Exception) -> None:
        """Ends the recording because of `error`, undoes all changes to the program, and writes the
        error to the journal. The program continues.
        """
        if self.phase is Phase.OVER:
            return
        window, self._window = self._window, None
        give_up(window, self._journal, error)
        with suppress(Exception):
            self._over("failed")
        self.phase = Phase.OVER

    def _over(self, why: str) -> None:
        phase, self.phase = self.phase, Phase.OVER
        self._by_time.stop()
        if self._first_steps is not None:
            self._first_steps.end(why)
        leader = self._chosen or self._steps.leader_in_hindsight()
        cut_short = why == "profiler" and self._boundary > 1  # with whole steps
        if why == "done" or cut_short:
            self._stopping.recorded()
        elif why == "exit":
            self._stopping.cancel()
        try:
            if not self._stopping.pending:
                self._leave()
            else:
                self._watching.follow(None)
        finally:
            count = self._steps.count(leader) if leader is not None else 0
            self._journal.write("over", why=why, phase=phase.value, steps=count, **device.asked_for())
            self._journal.close()

    def _leave(self) -> None:
        """Undoes what `begin` did, because the recording needs no more step boundaries."""
        active.deactivate(self)
        self._watching.end()
