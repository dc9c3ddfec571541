/** What was repaired, dropped or left undrawn, and what made this page. */

import { h } from "../dom";
import { plural } from "../format";
import { type Integrity, type Recorded, type Source, stepsFoundBy } from "../result";

/** What read the files; a run that is explained as it ends was never read. */
export function readBy(sources: Source[]): string {
  const readers = new Set(sources.map(({ reader }) => reader).filter((reader) => reader !== "virtual"));
  return readers.size > 0 ? ` read by ${[...readers].join(" and ")}` : "";
}

export function warning(integrity: Integrity): HTMLElement | null {
  if (integrity.ok) return null;
  return h(
    "div",
    { class: "warning", role: "note" },
    h("p", {}, h("a", { href: "#integrity" }, "Integrity"), ": something is missing or damaged, so figures may be wrong"),
    h("ul", { class: "notes" }, ...integrity.notes.map((note) => h("li", {}, note))),
  );
}

export function notes(result: Recorded, drawing: string[]): HTMLElement {
  const { source, integrity } = result;
  const all = [...integrity.notes, ...drawing];
  const step = `Steps were found by ${stepsFoundBy(result.steps)}; the window holds ${plural(result.steps.count, "step")}.`;
  return h(
    "section",
    { id: "integrity", "aria-labelledby": "integrity-title" },
    h("h2", { id: "integrity-title" }, "Integrity"),
    h("p", {}, integrity.ok ? "The run is whole enough for every figure here." : "Figures here may rest on something that is missing."),
    h("ul", { class: "notes" }, h("li", {}, step), ...all.map((note) => h("li", {}, note))),
    h("footer", {}, h("span", { class: "code" }, source.path), `${readBy([source])}; unstall ${result.version}, ${result.schema}`),
  );
}
