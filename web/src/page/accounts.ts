/** Where the time went: bars whose parts add up to the whole, several on one scale, and their legend. */

import { h } from "../dom";
import { duration, exact, percent, plural, signed } from "../format";
import { CAUSES, WORK } from "../palette";
import { type Accounts, hasDeviceWork, over, type Result } from "../result";
import type { Tooltip } from "../tooltip";
import { basisOf, isTrusted, isUndistorted } from "./replay";

const BUSY: Record<(typeof WORK)[number], [string, string]> = {
  compute: ["compute", "kernels run, and no copies"],
  copy: ["copies", "copies run, and no kernels"],
  both: ["compute and copies", "kernels and copies run side by side"],
  comm: ["communication", "collectives run with no compute beside them"],
};
const IDLE: Record<(typeof CAUSES)[number], [string, string]> = {
  sync: ["sync", "a wait had drained the queue"],
  launch: ["launch", "the host launches more slowly than the device works"],
  input: ["input", "waiting for data loading"],
  copy: ["copy", "held up by a blocking or serialised copy"],
  allocator: ["allocator", "cudaMalloc, cudaFree, empty_cache"],
  comm: ["comm", "waiting for other ranks"],
  startup: ["startup", "context, module loading, autotuning"],
  python: ["python", "the host at work outside of any operator"],
  event: ["event", "waiting for another stream"],
  latency: ["latency", "the device had the launch, and did not start yet"],
  unknown: ["unknown", "the launch, or the work of a graph, is not in the file"],
};

/** One run's accounts, summed over its steps. `about` is said beside its bar. */
export interface Side {
  name: string;
  about: string;
  steps: number;
  accounts: Accounts;
}

interface Part {
  key: string;
  isIdle: boolean;
  name: string;
  meaning: string;
}

const PARTS: Part[] = [
  ...WORK.map((key) => ({ key, isIdle: false, name: BUSY[key][0], meaning: BUSY[key][1] })),
  ...CAUSES.map((key) => ({ key, isIdle: true, name: IDLE[key][0], meaning: IDLE[key][1] })),
];

/** A column of figures: what of a part of the time, by its sums in each run. */
interface Column {
  title: string;
  cell(ns: number[]): string;
}

export function accounts(result: Result, tooltip: Tooltip): HTMLElement | null {
  if (!hasDeviceWork(result)) return null;
  const { steps, replay } = result;
  const recorded: Side = { name: "as recorded", about: duration(steps.mean_ns), steps: steps.count, accounts: result.accounts };
  const sides = [recorded];
  if (replay && isTrusted(replay) && isUndistorted(replay)) {
    const about = duration(replay.accounts.wall_ns / steps.count);
    sides.push({ name: "without the recorder", about, steps: steps.count, accounts: replay.accounts });
  }
  const share: Column = { title: "", cell: ([ns = 0]) => percent(ns, result.accounts.wall_ns) };
  const columns = sides.map(({ name }, i): Column => ({ title: sides.length > 1 ? name : "", cell: (ns) => time(ns[i]! / steps.count) }));
  return h(
    "section",
    { class: "accounts", "aria-labelledby": "accounts-title" },
    h("h2", { id: "accounts-title" }, `Where the time went, ${over(result)}`),
    sides.length > 1 ? bars(sides, tooltip) : bar(recorded, "all devices together", tooltip),
    replay && h("p", { class: "basis" }, basisOf(replay, steps, result.source)),
    legend(sides, [share, ...columns], tooltip),
    result.by_device.length > 1 && byDevice(result, tooltip),
  );
}

function time(ns: number): string {
  return ns === 0 ? "0" : duration(ns);
}

/** The accounts of two runs on one scale, and what changed. `settled` are the steps of long runs, where those differ. */
export function comparedAccounts(title: string, sides: [Side, Side], tooltip: Tooltip, settled?: [number, number]): HTMLElement {
  const [a, b] = sides.map(({ steps }) => steps) as [number, number];
  const columns: Column[] = [
    { title: sides[0].name, cell: ([ns]) => time(ns! / a) },
    { title: sides[1].name, cell: ([, ns]) => time(ns! / b) },
    { title: "change", cell: ([was, is]) => signed(is! / b - was! / a) },
  ];
  return h(
    "section",
    { class: "accounts", "aria-labelledby": "accounts-title" },
    h("h2", { id: "accounts-title" }, title),
    bars(sides, tooltip),
    settled && h("p", { class: "basis" }, `Of the ${plural(a, "step")} in the file, from the first launch until the device is done. In a long run a step settles to ${duration(settled[0])} and ${duration(settled[1])}.`),
    legend(sides, columns, tooltip),
  );
}

function sumOf({ accounts }: Side, { isIdle, key }: Part): number {
  return (isIdle ? accounts.idle_ns : accounts.busy_ns)[key] ?? 0;
}

/** Those that are not zero in any of them: work, then idle time by its size in the first. */
function partsOf(sides: Side[]): Part[] {
  const size = (part: Part) => sumOf(sides[0]!, part);
  const shown = PARTS.filter((part) => sides.some((side) => sumOf(side, part) > 0));
  return [...shown.filter(({ isIdle }) => !isIdle), ...shown.filter(({ isIdle }) => isIdle).sort((a, b) => size(b) - size(a))];
}

function classOf({ isIdle, key }: Part): string {
  return isIdle ? `idle-${key} is-idle` : `busy-${key}`;
}

function titleOf({ isIdle, name }: Part): string {
  return isIdle ? `idle, ${name}` : name;
}

function bars(sides: Side[], tooltip: Tooltip): HTMLElement {
  const longest = Math.max(...sides.map(({ accounts, steps }) => accounts.wall_ns / steps));
  const rows = sides.flatMap((side) => {
    const drawn = bar(side, side.name, tooltip);
    drawn.style.width = `${(100 * side.accounts.wall_ns) / side.steps / longest}%`;
    return [h("span", { class: "bar-name" }, side.name), h("div", {}, drawn), h("b", { class: "bar-about" }, side.about)];
  });
  return h("div", { class: "bars" }, ...rows);
}

function bar(side: Side, of: string, tooltip: Tooltip): HTMLElement {
  const wall = side.accounts.wall_ns;
  const parts = partsOf([side]);
  const text = parts.map((part) => `${titleOf(part)} ${percent(sumOf(side, part), wall)}`).join(", ");
  const element = h("div", { class: "bar", role: "img", "aria-label": `${of}: ${text}` });
  for (const part of parts) {
    const segment = h("div", { class: `segment ${classOf(part)}` });
    segment.style.flexGrow = String(sumOf(side, part) / wall);
    tooltip.attach(segment, [`${titleOf(part)}: ${part.meaning}`, ...exactly(side, part)]);
    element.append(segment);
  }
  return element;
}

function exactly(side: Side, part: Part): string[] {
  const ns = sumOf(side, part);
  return [`${exact(ns)} of ${exact(side.accounts.wall_ns)}`, percent(ns, side.accounts.wall_ns)];
}

function legend(sides: Side[], columns: Column[], tooltip: Tooltip): HTMLElement {
  const figures = (ns: number[]) => columns.map((column) => h("span", {}, column.cell(ns)));
  const heads = columns.some(({ title }) => title) && h("li", { class: "legend-columns" }, h("span", {}), ...columns.map(({ title }) => h("span", {}, title)));
  const group = (title: string, parts: Part[]) => {
    const totals = sides.map((side) => parts.reduce((ns, part) => ns + sumOf(side, part), 0));
    const head = h("li", { class: "legend-head" }, h("span", {}, title), ...figures(totals));
    tooltip.attach(head, [title, ...totals.map((ns, i) => (sides[1] ? `${sides[i]!.name}: ${exact(ns)}` : exact(ns)))]);
    return h("ul", { class: `legend columns-${columns.length}` }, heads && heads.cloneNode(true), head, ...parts.map((part) => row(part)));
  };
  const row = (part: Part) => {
    const item = h(
      "li",
      { tabindex: 0 },
      h("span", { class: "legend-name" }, h("i", { class: `swatch ${classOf(part)}` }), h("b", {}, part.name), h("span", { class: "meaning" }, part.meaning)),
      ...figures(sides.map((side) => sumOf(side, part))),
    );
    const lines = sides[1] ? sides.map((side) => `${side.name}: ${exactly(side, part).join(", ")}`) : exactly(sides[0]!, part);
    tooltip.attach(item, [`${titleOf(part)}: ${part.meaning}`, ...lines]);
    return item;
  };
  const parts = partsOf(sides);
  return h(
    "div",
    { class: "legends" },
    group("Busy", parts.filter(({ isIdle }) => !isIdle)),
    group("Idle, because of", parts.filter(({ isIdle }) => isIdle)),
  );
}

function byDevice(result: Result, tooltip: Tooltip): HTMLElement {
  return h(
    "div",
    { class: "by-device" },
    ...result.by_device.flatMap((device) => {
      const name = `GPU ${device.device}`;
      return [h("span", { title: device.name }, name), bar({ name, about: "", steps: 1, accounts: device }, name, tooltip)];
    }),
  );
}
