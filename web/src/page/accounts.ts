/** Where the time went: a bar whose parts add up to the whole, and its legend. */

import { h } from "../dom";
import { duration, exact, percent } from "../format";
import { CAUSES, WORK } from "../palette";
import { type Accounts, hasDeviceWork, over, type Result } from "../result";
import type { Tooltip } from "../tooltip";

interface Part {
  name: string;
  ns: number;
  meaning: string;
  isIdle: boolean;
}

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
  latency: ["latency", "the least time between launch and start"],
};

export function accounts(result: Result, tooltip: Tooltip): HTMLElement | null {
  if (!hasDeviceWork(result)) return null;
  const whole = partsOf(result.accounts);
  const several = result.by_device.length > 1;
  return h(
    "section",
    { class: "accounts", "aria-labelledby": "accounts-title" },
    h("h2", { id: "accounts-title" }, `Where the time went, ${over(result)}`),
    bar(whole, result.accounts.wall_ns, "all devices together", tooltip),
    legend(whole, result, tooltip),
    several && byDevice(result, tooltip),
  );
}

function partsOf({ busy_ns, idle_ns }: Accounts): Part[] {
  return [
    ...WORK.map((work) => ({ name: `busy-${work}`, ns: busy_ns[work] ?? 0, isIdle: false, meaning: `${BUSY[work][0]}: ${BUSY[work][1]}` })),
    ...CAUSES.map((cause) => ({ name: `idle-${cause}`, ns: idle_ns[cause] ?? 0, isIdle: true, meaning: `idle, ${IDLE[cause][0]}: ${IDLE[cause][1]}` })).sort(
      (a, b) => b.ns - a.ns,
    ),
  ].filter((part) => part.ns > 0);
}

function bar(parts: Part[], wall: number, of: string, tooltip: Tooltip): HTMLElement {
  const text = parts.map((part) => `${part.meaning.split(":")[0]} ${percent(part.ns, wall)}`).join(", ");
  const element = h("div", { class: "bar", role: "img", "aria-label": `${of}: ${text}` });
  for (const part of parts) {
    const segment = h("div", { class: `segment ${part.name}${part.isIdle ? " is-idle" : ""}` });
    segment.style.flexGrow = String(part.ns / wall);
    tooltip.attach(segment, tooltipOf(part, wall));
    element.append(segment);
  }
  return element;
}

function tooltipOf(part: Part, wall: number): string[] {
  return [part.meaning, `${exact(part.ns)} of ${exact(wall)}`, percent(part.ns, wall)];
}

function legend(parts: Part[], result: Result, tooltip: Tooltip): HTMLElement {
  const { wall_ns: wall } = result.accounts;
  const group = (title: string, chosen: Part[]) => {
    const total = chosen.reduce((ns, part) => ns + part.ns, 0);
    const head = h("li", { class: "legend-head" }, h("span", {}, title), h("span", {}, percent(total, wall)), h("span", {}, duration(total / result.steps.count)));
    tooltip.attach(head, [title, exact(total)]);
    return h("ul", { class: "legend" }, head, ...chosen.map((part) => row(part)));
  };
  const row = (part: Part) => {
    const [name, meaning] = part.meaning.replace(/^idle, /, "").split(": ") as [string, string];
    const item = h(
      "li",
      { tabindex: 0 },
      h("span", { class: "legend-name" }, h("i", { class: `swatch ${part.name}${part.isIdle ? " is-idle" : ""}` }), h("b", {}, name), h("span", { class: "meaning" }, meaning)),
      h("span", {}, percent(part.ns, wall)),
      h("span", {}, duration(part.ns / result.steps.count)),
    );
    tooltip.attach(item, tooltipOf(part, wall));
    return item;
  };
  return h(
    "div",
    { class: "legends" },
    group("Busy", parts.filter((part) => !part.isIdle)),
    group("Idle, because of", parts.filter((part) => part.isIdle)),
  );
}

function byDevice(result: Result, tooltip: Tooltip): HTMLElement {
  return h(
    "div",
    { class: "by-device" },
    ...result.by_device.flatMap((device) => {
      const name = `GPU ${device.device}`;
      return [h("span", { title: device.name }, name), bar(partsOf(device), device.wall_ns, name, tooltip)];
    }),
  );
}
