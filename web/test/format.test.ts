import { expect, test } from "vitest";
import { duration, exact, often, percent, rate, visible } from "../src/format";
import { tickText, ticksOf } from "../src/timeline/ruler";

test.each([
  [0, "0 ns"],
  [834, "834 ns"],
  [999.6, "1.00 µs"],
  [12_345, "12.3 µs"],
  [57_637_668, "57.6 ms"],
  [999_999_999, "1.00 s"],
  [123_456_789_000, "123 s"],
  [-2_500_000, "-2.50 ms"],
])("%d ns is %s", (ns, text) => expect(duration(ns)).toBe(text));

test("exact figures keep every nanosecond", () => expect(exact(172_913_004)).toBe("172,913,004 ns"));

test.each([
  [0, "0 %"],
  [0.9, "< 0.1 %"],
  [31, "3.1 %"],
  [999, "99.9 %"],
  [1000, "100 %"],
])("%d of 1000 is %s", (part, text) => expect(percent(part, 1000)).toBe(text));

test.each([
  [6, "2"],
  [0, "0"],
  [7, "2.3"],
  [3_100, "1,033"],
  [1, "0.3"],
])("%d in 3 steps are %s a step", (count, text) => expect(rate(count, 3)).toBe(text));

test.each([
  [48, 3, "16x a step"],
  [7, 3, "7x in 3 steps"],
  [1, 3, "once in 3 steps"],
  [1, 1, ""],
  [1_234, 1, "1,234x"],
])("%d in %d steps is said as %s", (count, steps, text) => expect(often(count, steps)).toBe(text));

test("what is invisible or turns the line is shown as a mark", () => {
  expect(visible("a\u202eb\u0000c\u200bd\u2066")).toBe("a\ufffdb\ufffdc\ufffdd\ufffd");
  expect(visible("tab\tline\nkept, é 漢")).toBe("tab\tline\nkept, é 漢");
});

test("marks of the ruler are round, apart, and have the digits that tell them apart", () => {
  const { step, times } = ticksOf(1_230_000, 1_980_000, 800, 100);
  expect(step).toBe(100_000);
  expect(times.map((time) => tickText(time, step))).toEqual(["1.3 ms", "1.4 ms", "1.5 ms", "1.6 ms", "1.7 ms", "1.8 ms", "1.9 ms"]);
  expect(tickText(3, 1)).toBe("3 ns");
});
