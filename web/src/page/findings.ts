/** What is worth changing, in the result's order, and what only looks as if it were. */

import { h } from "../dom";
import { editorLink } from "../editor";
import { duration, exact, isNothing, often, percent, plural } from "../format";
import { type Caller, costly, type Finding, hasDeviceWork, over, placeText, type Result, unit, type Where } from "../result";
import type { Tooltip } from "../tooltip";
import { command, whatIfCommand } from "./command";
import { undistortedBy } from "./plan";

const OPEN_AT_FIRST = 3;
const SHOWN_AT_FIRST = 12;

/** Null where there is no timeline to show it on. */
export type ShowOnTimeline = ((title: string, spans: [number, number][]) => void) | null;

export function findings(result: Result, tooltip: Tooltip, show: ShowOnTimeline): HTMLElement | null {
  if (!hasDeviceWork(result)) return null;
  const worthIt = costly(result);
  const apart = result.findings.filter((finding) => finding.harmless && !finding.wrong);
  const harmless = apart.filter((finding) => !finding.once);
  const once = apart.filter((finding) => finding.once).map((finding) => inAll(finding, result.steps.count));
  const list = (chosen: Finding[], open: number, first: number) => articles(chosen, result, open, "finding-", first, tooltip, show);
  const folded = (chosen: Finding[], name: string, first: number, title: (count: number) => string) =>
    chosen.length > 0 && h("details", { class: `folded ${name}` }, h("summary", {}, title(chosen.length)), list(chosen, 0, first));
  return h(
    "section",
    { "aria-labelledby": "findings-title" },
    h("h2", { id: "findings-title" }, `Findings, ${over(result)}`),
    worthIt.length > 0 ? list(worthIt.slice(0, SHOWN_AT_FIRST), OPEN_AT_FIRST, 1) : h("p", { class: "none" }, "Nothing found that is worth changing."),
    folded(worthIt.slice(SHOWN_AT_FIRST), "more", SHOWN_AT_FIRST + 1, (count) => plural(count, "smaller finding")),
    folded(harmless, "harmless", worthIt.length + 1, (count) => `Not worth changing: ${plural(count, "thing")} that people look for`),
    folded(once, "once", worthIt.length + harmless.length + 1, (count) => `Paid once, not by each step: ${plural(count, "thing")}`),
  );
}

/** A finding with its times of the whole recording. */
function inAll(finding: Finding, steps: number): Finding {
  return { ...finding, exposed_ns: finding.exposed_ns * steps, wait_ns: finding.wait_ns * steps };
}

/** Bugs rather than costs; null where there are none. */
export function wrongs(result: Result, tooltip: Tooltip, show: ShowOnTimeline): HTMLElement | null {
  const wrong = result.findings.filter((finding) => finding.wrong);
  if (wrong.length === 0) return null;
  const faults = wrong.flatMap(({ fault }) => fault ?? []);
  const harm = faults.length === 0 ? "results may be wrong, and differ from run to run"
    : faults.every(({ kind }) => kind === "memory") ? "the device's memory is full"
    : "a device failed, and computed nothing after";
  return h(
    "section",
    { "aria-labelledby": "wrong-title" },
    h("h2", { id: "wrong-title" }, `Bugs: ${harm}`),
    articles(wrong, result, OPEN_AT_FIRST, "bug-", 1, tooltip, show),
  );
}

/** Opens the finding that the address names, such as `#finding-3`, with what it is folded into, and shows it. */
export function openAddressed(): void {
  const sought = /^#(?:finding|bug)-\d+$/.test(location.hash) ? document.getElementById(location.hash.slice(1)) : null;
  if (!sought) return;
  for (let element: Element | null = sought; element; element = element.parentElement) {
    if (element instanceof HTMLDetailsElement) element.open = true;
  }
  sought.scrollIntoView({ block: "start" });
}

/** Findings are numbered as in the other formats, from `first` on; each has an address. */
function articles(
  chosen: Finding[], result: Result, open: number, address: string, first: number, tooltip: Tooltip, show: ShowOnTimeline,
): HTMLElement {
  const items = chosen.map((finding, i) => h("li", {}, article(finding, result, i < open, address, first + i, tooltip, show)));
  return h("ol", { class: "findings", start: first }, ...items);
}

function article(
  finding: Finding, result: Result, isOpen: boolean, address: string, number: number, tooltip: Tooltip, show: ShowOnTimeline,
): HTMLElement {
  const steps = result.steps.count;
  const id = `${address}${number}`;
  return h(
    "details",
    { class: "finding", id, open: isOpen },
    h(
      "summary",
      { "data-number": finding.wrong ? `b${number}` : number },
      h("span", { class: "finding-title" }, h("b", {}, finding.title), place(finding.where, null)),
      !finding.wrong && figures(finding, result, tooltip),
    ),
    h(
      "dl",
      { class: "facts" },
      ...fact(steps > 1 && !finding.wrong && !finding.once ? `Saw in ${plural(steps, "step")}` : "Saw", finding.saw),
      ...fact("Do", finding.fix),
      ...fact("Safe if", finding.safe_if),
      ...(finding.edit ? [h("dt", {}, "Try it"), h("dd", {}, command(whatIfCommand(result.source.path, [finding.edit], undistortedBy(result))))] : []),
      ...from(finding.where.called_from),
    ),
    h(
      "p",
      { class: "finding-foot" },
      show && finding.spans.length > 0 && h("button", { class: "primary", click: () => show(finding.title, finding.spans) }, "Show on timeline"),
      editorLink(finding.where.file, finding.where.line, "Open in"),
      h("span", { class: "code rule" }, finding.rule),
      h("span", {}, finding.wrong ? `${plural(finding.count, "time")} in the whole run` : often(finding.count, finding.steps_seen, steps)),
      h("span", {}, `${finding.confidence} confidence`),
      h("a", { href: `#${id}`, title: "The address of this finding on this page" }, `#${id}`),
    ),
  );
}

function fact(term: string, text: string | null | undefined): HTMLElement[] {
  return text ? [h("dt", {}, term), h("dd", {}, text)] : [];
}

function from(caller: Caller | null): HTMLElement[] {
  if (!caller) return [];
  const { file, line } = caller;
  return [h("dt", {}, "From"), h("dd", {}, `${file}:${line} ${caller.function}`, editorLink(file, line))];
}

/** A place, and a link that opens it, unless it is within what a click unfolds. */
export function place(where: Where, link = editorLink(where.file, where.line)): HTMLElement {
  const inside = [where.function, where.op].filter((part) => part && part !== placeText(where)).join(" · ");
  return h("span", { class: "place" }, h("span", {}, fileAndLine(where), link), inside !== "" && h("span", { class: "inside" }, inside));
}

/** A file and line, with its folder apart. */
export function fileAndLine(where: Where): HTMLElement {
  const at = placeText(where);
  const note = where.line_is === "def" ? " (the function's def line)" : "";
  const folder = where.file === null ? "" : at.slice(0, at.lastIndexOf("/") + 1);
  return h("span", { class: "code", title: `${at}${note}` }, folder !== "" && h("span", { class: "folder" }, folder), at.slice(folder.length));
}

function figures(finding: Finding, result: Result, tooltip: Tooltip): HTMLElement {
  const of = finding.once ? "in all" : over(result);
  const cells: [string, number | null, string][] = [
    ["exposed", finding.exposed_ns, `device time lost because of it, ${of}`],
    ["host waits", finding.wait_ns, `the host is blocked, ${of}`],
  ];
  const hasGains = !finding.once && result.findings.some(({ gain_ns, gain_below_ns }) => gain_ns !== null || gain_below_ns !== null);
  if (hasGains) cells.unshift(["gain", finding.gain_ns, `the time ${unit(result.steps)} saves if this alone is fixed`]);
  const errorNs = result.replay?.error_ns ?? 0;
  const group = h("span", { class: "costs" });
  for (const [name, ns, meaning] of cells) {
    const none = ns === null || ns === 0 || (name === "gain" && isNothing(ns, baseOf(name, result)));
    const strength = none ? " is-zero" : name === "gain" ? " is-gain" : "";
    const below = name === "gain" ? finding.gain_below_ns : null;
    const text = below !== null ? `<${duration(below)}` : ns === null ? "–" : none ? "0" : duration(ns);
    const cell = h("span", { class: `cost${strength}` }, h("span", { class: "cost-ns" }, text), h("span", { class: "cost-name" }, name));
    const share = ns !== null && !finding.once ? [`${percent(ns, baseOf(name, result))} of ${unit(result.steps)}`] : [];
    const known = ns !== null ? [`${name}: ${meaning}`, exact(ns), ...share] : [`${name}: not known, since no edit models the fix`];
    if (ns !== null && name === "gain" && errorNs > 0) known.push(`± ${duration(errorNs)}, the replay's own error`);
    tooltip.attach(cell, below !== null ? [`${name}: within the replay's own error of ${duration(below)}`] : known);
    group.append(cell);
  }
  return group;
}

/** A gain is of the step without the recorder, the rest of the recorded one. */
function baseOf(name: string, { replay, steps }: Result): number {
  return name === "gain" && replay ? replay.undistorted_mean_step_ns : steps.mean_ns;
}
