/** What is worth changing, in the result's order, and what only looks as if it were. */

import { h } from "../dom";
import { duration, exact, often, percent, plural } from "../format";
import { type Finding, hasDeviceWork, over, placeText, type Result, type Where } from "../result";
import type { Tooltip } from "../tooltip";

const OPEN_AT_FIRST = 3;
const SHOWN_AT_FIRST = 12;

/** Null where there is no timeline to show it on. */
export type ShowOnTimeline = ((title: string, spans: [number, number][]) => void) | null;

export function findings(result: Result, tooltip: Tooltip, show: ShowOnTimeline): HTMLElement | null {
  if (!hasDeviceWork(result)) return null;
  const costly = result.findings.filter((finding) => !finding.harmless);
  const harmless = result.findings.filter((finding) => finding.harmless);
  const list = (chosen: Finding[], open: number) =>
    h("ol", { class: "findings" }, ...chosen.map((finding, i) => h("li", {}, article(finding, result, i < open, tooltip, show))));
  const folded = (chosen: Finding[], name: string, title: (count: number) => string) =>
    chosen.length > 0 && h("details", { class: `folded ${name}` }, h("summary", {}, title(chosen.length)), list(chosen, 0));
  return h(
    "section",
    { "aria-labelledby": "findings-title" },
    h("h2", { id: "findings-title" }, `Findings, ${over(result)}`),
    costly.length > 0 ? list(costly.slice(0, SHOWN_AT_FIRST), OPEN_AT_FIRST) : h("p", { class: "none" }, "Nothing found that is worth changing."),
    folded(costly.slice(SHOWN_AT_FIRST), "more", (count) => plural(count, "smaller finding")),
    folded(harmless, "harmless", (count) => `Not worth changing: ${plural(count, "thing")} that people look for`),
  );
}

function article(finding: Finding, result: Result, isOpen: boolean, tooltip: Tooltip, show: ShowOnTimeline): HTMLElement {
  const steps = result.steps.count;
  return h(
    "details",
    { class: "finding", open: isOpen },
    h(
      "summary",
      {},
      h("span", { class: "finding-title" }, h("b", {}, finding.title), place(finding.where)),
      figures(finding, result, tooltip),
    ),
    h(
      "dl",
      { class: "facts" },
      ...fact(steps > 1 ? `Saw in ${plural(steps, "step")}` : "Saw", finding.saw),
      ...fact("Do", finding.fix),
      ...fact("Safe if", finding.safe_if),
      ...fact("From", finding.where.called_from && `${finding.where.called_from.file}:${finding.where.called_from.line} ${finding.where.called_from.function}`),
    ),
    h(
      "p",
      { class: "finding-foot" },
      show && finding.spans.length > 0 && h("button", { class: "primary", click: () => show(finding.title, finding.spans) }, "Show on timeline"),
      h("span", { class: "code rule" }, finding.rule),
      h("span", {}, often(finding.count, steps)),
      h("span", {}, `${finding.confidence} confidence`),
    ),
  );
}

function fact(term: string, text: string | null | undefined): HTMLElement[] {
  return text ? [h("dt", {}, term), h("dd", {}, text)] : [];
}

export function place(where: Where): HTMLElement {
  const at = placeText(where);
  const note = where.line_is === "def" ? " (the function's def line)" : "";
  const inside = [where.function, where.op].filter((part) => part && part !== at).join(" · ");
  const folder = where.file === null ? "" : at.slice(0, at.lastIndexOf("/") + 1);
  const text = h("span", { class: "code", title: `${at}${note}` }, folder !== "" && h("span", { class: "folder" }, folder), at.slice(folder.length));
  return h("span", { class: "place" }, text, inside !== "" && h("span", { class: "inside" }, inside));
}

function figures(finding: Finding, result: Result, tooltip: Tooltip): HTMLElement {
  const cells: [string, number | null, string][] = [
    ["gain", finding.gain_ns, "a step gets shorter by, when this is mended"],
    ["exposed", finding.exposed_ns, `what the device lost because of it, ${over(result)}`],
    ["host waits", finding.wait_ns, `the host is blocked, ${over(result)}`],
  ];
  const group = h("span", { class: "costs" });
  for (const [name, ns, meaning] of cells) {
    if (ns === null) continue;
    const cell = h("span", { class: `cost${ns === 0 ? " is-zero" : ""}` }, h("span", { class: "cost-ns" }, ns === 0 ? "0" : duration(ns)), h("span", { class: "cost-name" }, name));
    tooltip.attach(cell, [`${name}: ${meaning}`, exact(ns), `${percent(ns, result.steps.mean_ns)} of a step`]);
    group.append(cell);
  }
  return group;
}
