import { expect, test } from "vitest";

import { type Steps, stepsFoundBy } from "../src/result";

const STEPS: Steps = { found_by: "annotation", name: "ProfilerStep", marks: null, count: 3, start_ns: 0, wall_ns: 9, mean_ns: 3 };

test.each<[Partial<Steps>, string]>([
  [{}, "annotation ProfilerStep"],
  [{ found_by: "whole", name: null }, "none: the whole run counts as one"],
  [{ found_by: "period", name: "gemm" }, "the repeating launches gemm"],
  [{ name: "unstall.step", marks: "optimizer" }, "optimizer steps"],
  [{ name: "unstall.step", marks: "loader" }, "the batches or items of a loop"],
  [{ name: "unstall.step", marks: "forward" }, "model calls"],
  [{ name: "unstall.step", marks: "explicit" }, "unstall.step()"],
])("what told steps apart: %o", (said, text) => {
  expect(stepsFoundBy({ ...STEPS, ...said })).toBe(text);
});
