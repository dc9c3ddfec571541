import { expect, test } from "vitest";
import { Peaks } from "../src/timeline/peaks";
import { firstVisible, gallop, lowerBound, rowsOf } from "../src/timeline/rows";

const values = Float64Array.from({ length: 1000 }, (_, i) => Math.floor((i * 7919) % 613));
const sorted = values.slice().sort();

test("the largest of any range is found", () => {
  const peaks = new Peaks(values);
  for (let first = 0; first < 1000; first += 37) {
    for (let last = first + 1; last <= 1000; last += 41) {
      const range = values.slice(first, last);
      expect(peaks.at(first, last)).toBe(first + range.indexOf(Math.max(...range)));
    }
  }
});

test("galloping finds what the plain search finds", () => {
  for (let bound = -1; bound < 615; bound++) {
    const found = lowerBound(sorted, bound, 0, 1000);
    expect(sorted.findIndex((value) => value >= bound)).toBe(found === 1000 ? -1 : found);
    for (const first of [0, 1, 500, 999]) {
      expect(gallop(sorted, bound, first, 1000)).toBe(lowerBound(sorted, bound, first, 1000));
    }
  }
});

test("an event that has begun before a time and still runs is visible", () => {
  const rows = rowsOf(Float64Array.of(0, 10, 20), Float64Array.of(5, 15, 25), new Uint8Array(3));
  expect([0, 4, 5, 12, 15, 30].map((time) => firstVisible(rows, time, 0, 3))).toEqual([0, 0, 1, 1, 2, 3]);
});
