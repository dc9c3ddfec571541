import { describe, expect, test } from "vitest";
import { rowsOf } from "../src/timeline/rows";
import { type Scale, scan } from "../src/timeline/scan";

interface Drawn {
  row: number;
  left: number;
  right: number;
  covered: number;
}

function lane(events: [start: number, end: number][]) {
  const start = Float64Array.from(events, ([from]) => from);
  return rowsOf(start, Float64Array.from(events, ([, to]) => to), new Uint8Array(events.length));
}

function drawn(events: [number, number][], scale: Scale): Drawn[] {
  const rectangles: Drawn[] = [];
  scan(lane(events), 0, events.length, scale, (row, left, right, covered) => rectangles.push({ row, left, right, covered }));
  return rectangles;
}

/** A small generator of numbers below 1, the same in every run. */
function dice(seed: number): () => number {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

function many(count: number, next: () => number): [number, number][] {
  const events: [number, number][] = [];
  let time = 0;
  for (let i = 0; i < count; i++) {
    const start = time + Math.floor(next() * 20);
    time = start + Math.floor(next() ** 4 * 300);
    events.push([start, time]);
  }
  return events;
}

const ALL: Scale = { from: 0, to: 100, width: 100 };

describe("scan", () => {
  test("draws an event of a pixel or more alone, at its own edges", () => {
    expect(drawn([[10, 30], [40, 41]], ALL)).toEqual([
      { row: 0, left: 10, right: 30, covered: 1 },
      { row: 1, left: 40, right: 41, covered: 1 },
    ]);
  });

  test("draws an event that began less than a pixel before the view", () => {
    expect(drawn([[9.5, 30]], { from: 10, to: 110, width: 100 })).toEqual([{ row: 0, left: -0.5, right: 20, covered: 1 }]);
  });

  test("draws small events of one pixel together, as the longest, with the part they cover", () => {
    expect(drawn([[5.0, 5.1], [5.2, 5.5], [5.6, 5.7]], ALL)).toEqual([
      { row: 1, left: 5, right: 6, covered: expect.closeTo(0.5) },
    ]);
  });

  test("leaves out what is out of sight", () => {
    expect(drawn([[0, 10], [20, 30], [200, 300]], { from: 12, to: 100, width: 88 }).map(({ row }) => row)).toEqual([1]);
  });

  test.each([1, 2, 3, 4])("draws at most three rectangles a pixel, however many events there are (%i)", (seed) => {
    const events = many(200_000, dice(seed));
    const end = events.at(-1)![1];
    for (const share of [1, 0.1, 0.001]) {
      expect(drawn(events, { from: end / 3, to: end / 3 + end * share, width: 300 }).length).toBeLessThanOrEqual(903);
    }
  });

  test("bounds the rectangles of events that overlap without end, too", () => {
    const overlapping = Array.from({ length: 50_000 }, (_, i): [number, number] => [i / 1000, 1000 + i]);
    expect(drawn(overlapping, ALL).length).toBeLessThanOrEqual(300);
  });

  test.each([5, 6, 7])("covers as much time as the events do, but for what spills over a pixel's edge (%i)", (seed) => {
    const events = many(5_000, dice(seed));
    const end = events.at(-1)![1];
    const scale = { from: 0, to: end, width: 400 };
    const covered = drawn(events, scale).reduce((sum, { left, right, covered: part }) => sum + (right - left) * part, 0);
    const truth = events.reduce((sum, [from, to]) => sum + to - from, 0);
    const share = (covered * end) / 400 / truth;
    expect(share).toBeGreaterThan(0.98);
    expect(share).toBeLessThan(1.0001);
  });
});
