/** What replaying says of a run, in words: how well it gives the measured step back, and what the recorder cost. */

import { duration, signedPercent } from "../format";
import { isSimulated, type Replay, type Source, type Steps, type Undistorted, unit } from "../result";

/** A part of the step: less than that is no difference. */
export const SAME = 0.005;

/** Whether the replay is near enough to the recording to promise anything: `UNTRUSTED` in `src/unstall/result.py`. */
export function isTrusted({ error }: Replay): boolean {
  return Math.abs(error) <= 0.2;
}

/** Whether the recorder's cost was taken out. */
export function isUndistorted({ undistorted_by }: Undistorted): boolean {
  return undistorted_by !== "nothing";
}

/** "≈ 34.8 ms": an estimate is never shown as a measurement. */
export function undistortedStep(known: Undistorted, ns: number): string {
  return known.undistorted_by === "usual cost" || known.undistorted_by === "host-only steps" ? `≈ ${duration(ns)}` : duration(ns);
}

/** How the step without the recorder is known. */
export function howKnown(known: Undistorted, stepNs: number): string {
  if (known.undistorted_by === "nothing") return "with the recorder's cost left in";
  if (known.undistorted_by === "usual cost") {
    const good = known.usual_error === null ? "" : `, ± ${Math.round(100 * known.usual_error)} % or so`;
    return `estimated from what recording usually costs${good}; --plain-step-ms makes it sure`;
  }
  if (known.undistorted_by === "host-only steps") return "by steps in which the host alone was timed; --plain-step-ms makes it sure";
  const plain = known.plain_step_ns ?? stepNs;
  const off = stepNs / Math.max(plain, 1) - 1;
  return Math.abs(off) < SAME ? `as measured without recording, ${duration(plain)}` : `measured without recording: ${duration(plain)}, of which this is ${signedPercent(off)} off`;
}

/** The same beside a figure. */
export function inBrief(known: Undistorted, source: Source): string {
  if (isSimulated(source)) return "as simulated";
  if (known.undistorted_by === "nothing") return "with the recorder's cost left in";
  if (known.undistorted_by === "plain step time") return "as measured without recording";
  if (known.undistorted_by === "host-only steps") return "its host timed alone";
  return known.usual_error === null ? "an estimate" : `an estimate, ± ${Math.round(100 * known.usual_error)} % or so`;
}

/** Both in two sentences. */
export function basisOf(replay: Replay, steps: Steps, source: Source): string {
  const measuredNs = steps.mean_ns;
  return sentences(replay, source, unit(steps), { measuredNs, replayedNs: replay.mean_step_ns, error: replay.error, stepNs: replay.undistorted_mean_step_ns });
}

export function sentences(known: Undistorted, source: Source, of: string, step: { measuredNs: number; replayedNs: number; error: number; stepNs: number }): string {
  const times = `${of} takes ${duration(step.measuredNs)}; its replay takes ${duration(step.replayedNs)}, ${signedPercent(step.error)} off.`;
  if (isSimulated(source)) return `As simulated, ${times}`;
  const replayed = `Measured with the recorder, ${times}`;
  if (!isUndistorted(known)) return `${replayed} The recorder's cost is left in.`;
  return `${replayed} Without the recorder it takes ${duration(step.stepNs)} in a long run: ${howKnown(known, step.stepNs)}.`;
}
