/** The page of `unstall diff`: what changed between two recorded runs, and both under each other. */

import type { Comparison, Side as Run } from "../comparison";
import { h } from "../dom";
import { became, duration, exact, plural, signed } from "../format";
import { type Accounts, unit } from "../result";
import type { Picture } from "../timeline/picture";
import { comparedAccounts, type Side } from "./accounts";
import { copies, kernels, launches, lines, waits } from "./changes";
import { aboutSource, baseName, type Figure, figureList, masthead, type Shell, verdict } from "./header";
import { readBy } from "./notes";
import { type Page, searchIn, timelineSection, timelinesOf } from "./page";

export function diffPage(result: Comparison, pictures: Picture[], shell: Shell): Page {
  const { tooltip } = shell;
  const { a, b } = result;
  const timelines = timelinesOf(pictures, [{ name: "A", about: aboutRun(a) }, { name: "B", about: aboutRun(b) }], tooltip);
  const search = searchIn(timelines);
  return {
    title: `${baseName(a.source.path)} → ${baseName(b.source.path)}`,
    timelines,
    header: h(
      "header",
      { class: "top" },
      masthead("diff", [a.source, b.source], aboutBoth(a, b), shell),
      ...verdict(result.summary.text),
      figureList(figures(result), tooltip),
    ),
    sections: [
      caveats(result),
      result.accounts.length > 0 ? comparedAccounts(`Where ${both(result)} goes`, [side("A", result), side("B", result)], tooltip) : null,
      timelineSection(timelines, "Timelines", "This page was made without the runs' events."),
      waits(result, search),
      copies(result, search),
      launches(result),
      kernels(result, search),
      lines(result, search),
      foot(result),
    ],
  };
}

function aboutBoth(a: Run, b: Run): string {
  const [one, other] = [aboutSource(a.source), aboutSource(b.source)];
  return one === other ? one : `${one} → ${other}`;
}

function aboutRun({ source, steps, shortest_step_ns: shortest, longest_step_ns: longest }: Run): string {
  const range = steps.count > 1 ? ` (${duration(shortest)} to ${duration(longest)})` : "";
  return `${baseName(source.path)} · ${steps.found_by === "whole" ? `the whole run, ${duration(steps.wall_ns)}` : `${plural(steps.count, "step")} of ${duration(steps.mean_ns)}${range}`}`;
}

function both({ a, b }: Comparison): string {
  return unit(a.steps) === "the run" ? unit(b.steps) : "a step";
}

function figures(result: Comparison): Figure[] {
  const { a, b, step_ns: step } = result;
  const of = both(result);
  const bound: Figure = ["bound by", a.bound_by === b.bound_by ? a.bound_by : `${a.bound_by} → ${b.bound_by}`, [`what holds ${of} up, in A and in B`]];
  if (!step) return [bound];
  const change = step.b - step.a;
  const noise = step.noise === null ? [] : [`${duration(step.noise)} or less may be chance`];
  return [
    [`${of} in A`, duration(step.a), [exact(step.a)]],
    [`${of} in B`, duration(step.b), [exact(step.b)]],
    ["change", signed(change), [exact(change), ...noise]],
    ...(step.noise === null ? [] : [["noise", `± ${duration(step.noise)}`, ["what the steps within each file differ by (95 % of the time)", exact(step.noise)]] as Figure]),
    bound,
  ];
}

function side(name: "A" | "B", { accounts }: Comparison): Side {
  const key = name === "A" ? "a" : "b";
  const of = (kind: "busy" | "idle") => Object.fromEntries(accounts.filter((part) => part.kind === kind).map((part) => [part.key, part.time_ns[key]]));
  const sums: Accounts = { busy_ns: of("busy"), idle_ns: of("idle"), wall_ns: accounts.reduce((sum, { time_ns }) => sum + time_ns[key], 0) };
  return { name, about: duration(sums.wall_ns), steps: 1, accounts: sums };
}

function caveats({ caveats, a, b }: Comparison): HTMLElement | null {
  if (!caveats.length) return null;
  const isSound = a.integrity.ok && b.integrity.ok;
  return h(
    "section",
    { class: `caveats${isSound ? "" : " warning"}`, "aria-labelledby": "caveats-title" },
    h("h2", { id: "caveats-title" }, "Before you compare"),
    h("ul", { class: "notes" }, ...caveats.map(({ text }) => h("li", {}, text))),
  );
}

function foot({ a, b, unchanged, step_ns, version, schema }: Comparison): HTMLElement {
  const same = ([["waits", "wait", "waits"], ["copies", "copy", "copies"], ["kernels", "kernel", "kernels"], ["lines", "line", "lines"]] as const)
    .filter(([key]) => unchanged[key] > 0)
    .map(([key, one, many]) => plural(unchanged[key], one, many));
  return h(
    "section",
    {},
    same.length > 0 && h("p", { class: "muted" }, `As they were, but for noise: ${same.join(", ")}.`),
    step_ns !== null && step_ns.noise !== null && h("p", { class: "muted" }, "Noise is what the steps within each file differ by (95 % of the time); two runs of one program may differ by more."),
    h("footer", {}, h("span", { class: "code" }, became(a.source.path, b.source.path)), `${readBy([a.source, b.source])}; unstall ${version}, ${schema}`),
  );
}
