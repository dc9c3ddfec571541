/** A step's time as a waterfall: from what it is, down by each edit, to the floor. */

import { h } from "../dom";
import { duration, exact, isNothing, percent } from "../format";
import type { PlanStep } from "../result";
import type { Tooltip } from "../tooltip";

export interface Fall {
  step: PlanStep;
  /** What the edit does, in words, where that is known. */
  title: string;
}

export interface Waterfall {
  start: { title: string; about: string; ns: number };
  falls: Fall[];
  floorNs: number | null;
  /** The replay's own error: a smaller gain is not told from nothing. */
  errorNs: number;
  /** What the times are of: "a step". */
  unit: string;
}

export function waterfall({ start, falls, floorNs, errorNs, unit }: Waterfall, tooltip: Tooltip): HTMLElement {
  const whole = Math.max(start.ns, floorNs ?? 0, ...falls.map(({ step }) => step.step_ns), 1);
  const floor = Math.min(floorNs ?? 0, whole);
  const part = (ns: number) => `${(100 * ns) / whole}%`;

  const track = (ns: number, was: number, tip: string[]) => {
    const [low, high] = [Math.min(ns, was), Math.max(ns, was)];
    const device = h("i", { class: "fall-device" });
    device.style.width = part(Math.min(floor, low));
    const rest = h("i", { class: "fall-rest" });
    rest.style.width = part(Math.max(low - floor, 0));
    const change = h("i", { class: ns > was ? "fall-loss" : "fall-gain" });
    change.style.width = part(high - Math.max(low, 0));
    const element = h("span", { class: "fall-track" }, device, rest, high > low && change);
    element.style.setProperty("--end", part(ns));
    element.style.setProperty("--from", part(was));
    tooltip.attach(element, tip);
    return element;
  };
  const row = (name: string, what: (Node | string | false)[], bar: HTMLElement, takes: number, gain: string) =>
    h("li", { class: name }, h("span", { class: "fall-what" }, ...what), bar, h("b", { class: "fall-takes", title: exact(takes) }, duration(takes)), h("span", { class: `fall-saves${gain === "nothing" ? " is-zero" : gain.startsWith("−") ? " is-loss" : ""}` }, gain));

  let was = start.ns;
  const rows = falls.map(({ step, title }, i) => {
    const bar = track(step.step_ns, was, [shown(step.edit), `from ${exact(was)} to ${exact(step.step_ns)}`, `${percent(Math.abs(step.gain_ns), start.ns)} of ${unit}`]);
    was = step.step_ns;
    const what = [
      h("span", { class: "fall-title" }, h("span", { class: "fall-number" }, String(i + 1)), title || h("span", { class: "code" }, shown(step.edit))),
      title !== "" && h("span", { class: "code fall-edit" }, shown(step.edit)),
      ...step.notes.map((note) => h("span", { class: "fall-note" }, note)),
    ];
    return row(i + 1 < falls.length ? "fall" : "fall fall-last", what, bar, step.step_ns, saved(step.gain_ns, start.ns, errorNs));
  });
  const first = track(start.ns, start.ns, [start.title, exact(start.ns)]);
  const list = h(
    "ol",
    { class: "waterfall" },
    h("li", { class: "fall-head", "aria-hidden": "true" }, h("span", {}, unit.charAt(0).toUpperCase() + unit.slice(1)), h("span", {}), h("span", {}, "takes"), h("span", {}, errorNs > 0 ? `gain ± ${duration(errorNs)}` : "gain")),
    row("fall-start", [h("span", { class: "fall-title" }, start.title), h("span", { class: "fall-note" }, start.about)], first, start.ns, ""),
    ...rows,
    floorNs !== null &&
      row(
        "fall-floor",
        [h("span", { class: "fall-title" }, "The floor"), h("span", { class: "fall-note" }, "device busy time after these changes: changes to the host alone cannot go below it")],
        track(floorNs, floorNs, ["the floor", exact(floorNs)]),
        floorNs,
        "",
      ),
  );
  list.style.setProperty("--floor", part(floor));
  return list;
}

function saved(ns: number, stepNs: number, errorNs: number): string {
  if (ns !== 0 && Math.abs(ns) < errorNs) return `<${duration(errorNs)}`;
  return isNothing(ns, stepNs) ? "nothing" : ns > 0 ? duration(ns) : `−${duration(-ns)}`;
}

/** Without stacks the operator alone is an edit's place. */
function shown(edit: string): string {
  return edit.replace(":-:-:", ":");
}
