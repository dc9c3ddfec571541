/**
 * Events as columns, and the three questions that drawing asks of a range of them: where does it begin, how much
 * time does it cover, which is its longest. None costs more than a few dozen steps, however many events there are.
 */

import { Peaks } from "./peaks";

export interface Rows {
  start: Float64Array;
  end: Float64Array;
  kind: Uint8Array;
  /** covered[i]: the summed durations of all rows before i. */
  covered: Float64Array;
  longest: Peaks;
}

export function rowsOf(start: Float64Array, end: Float64Array, kind: Uint8Array): Rows {
  const duration = new Float64Array(start.length);
  const covered = new Float64Array(start.length + 1);
  for (let i = 0; i < start.length; i++) {
    duration[i] = end[i]! - start[i]!;
    covered[i + 1] = covered[i]! + duration[i]!;
  }
  return { start, end, kind, covered, longest: new Peaks(duration) };
}

/** The first index in [first, last) whose value is not below `bound`; `last` where there is none. */
export function lowerBound(values: Float64Array, bound: number, first: number, last: number): number {
  while (first < last) {
    const middle = (first + last) >>> 1;
    if (values[middle]! < bound) first = middle + 1;
    else last = middle;
  }
  return first;
}

/** As `lowerBound`, but quick where the answer is near `first`. */
export function gallop(values: Float64Array, bound: number, first: number, last: number): number {
  let stride = 1;
  while (first + stride < last && values[first + stride]! < bound) stride *= 2;
  return lowerBound(values, bound, first, Math.min(first + stride + 1, last));
}

/** The first row of [first, last) that may be seen at or after `time`, in a lane sorted by start. */
export function firstVisible(rows: Rows, time: number, first: number, last: number): number {
  const after = lowerBound(rows.start, time, first, last);
  return after > first && rows.end[after - 1]! > time ? after - 1 : after;
}
