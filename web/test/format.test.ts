import { expect, test } from "vitest";
import { became, duration, exact, isNothing, often, percent, perStep, rate, signed, signedPercent, size, times as faster, visible } from "../src/format";
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
  [48, 3, 3, "16x a step"],
  [48, null, 3, "16x a step"],
  [48, 1, 3, "48x in 1 of 3 steps"],
  [7, 3, 3, "7x in 3 steps"],
  [1, 1, 3, "once in 3 steps"],
  [1, 1, 1, ""],
  [1_234, 1, 1, "1,234x"],
])("%d in %d of %d steps is said as %s", (count, seen, steps, text) => expect(often(count, seen, steps)).toBe(text));

test("what is invisible or turns the line is shown as a mark", () => {
  expect(visible("a\u202eb\u0000c\u200bd\u2066")).toBe("a\ufffdb\ufffdc\ufffdd\ufffd");
  expect(visible("tab\tline\nkept, é 漢")).toBe("tab\tline\nkept, é 漢");
});

test("marks of the ruler are round, apart, and have the digits that tell them apart", () => {
  const { step, times } = ticksOf(1_230_000, 1_980_000, 800, 100);
  expect(step).toBe(100_000);
  expect(times.map((time) => tickText(time, step))).toEqual(["1.3 ms", "1.4 ms", "1.5 ms", "1.6 ms", "1.7 ms", "1.8 ms", "1.9 ms"]);
  expect(tickText(3, 1)).toBe("3 ns");
  expect(ticksOf(-10, 1_000, 800, 100).times.map((time) => tickText(time, 200))[0]).toBe("0.0 µs");
});

test.each([
  [-1_200_000, "−1.20 ms"],
  [3_000, "+3.00 µs"],
  [0, "0"],
  [0.3, "0"],
])("a change of %d ns has its sign: %s", (ns, text) => expect(signed(ns)).toBe(text));

test.each([
  [0.0213, "+2.1 %"],
  [-0.0213, "−2.1 %"],
  [-0.000_006, "0.0 %"],
])("a part of %d is said as %s", (part, text) => expect(signedPercent(part)).toBe(text));

test.each([
  [7_337_352, 890_210, "8.24x as fast"],
  [43_000, 40_500, "5.8 % less"],
  [1_000, 1_200, "20.0 % more"],
])("from %d to %d is %s", (from, to, text) => expect(faster(from, to)).toBe(text));

test.each([
  [512, "512 B"],
  [1_536, "1.50 KiB"],
  [38_535_168, "36.8 MiB"],
])("%d bytes are %s", (bytes, text) => expect(size(bytes)).toBe(text));

test("counts of a step need not be whole, and what is alike is said once", () => {
  expect([0, 0.05, 2.5, 1_208].map(perStep)).toEqual(["0", "< 0.1", "2.5", "1,208"]);
  expect([became("a", "a"), became("a", "b")]).toEqual(["a", "a → b"]);
});

test("a gain of less than 0.05 % of a step is none", () => {
  expect([-27, 499, 500, -5_000].map((ns) => isNothing(ns, 1_000_000))).toEqual([true, true, false, false]);
});
