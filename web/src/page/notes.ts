/** What was repaired, dropped or left undrawn, and what made this page. */

import { h } from "../dom";
import { plural } from "../format";
import { type Integrity, type Recorded, stepsFoundBy } from "../result";

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
    h("p", {}, integrity.ok ? "The recording is whole enough for every figure here." : "Figures here may rest on something that is missing."),
    h("ul", { class: "notes" }, h("li", {}, step), ...all.map((note) => h("li", {}, note))),
    h("footer", {}, h("span", { class: "code" }, source.path), ` read by ${source.reader}; unstall ${result.version}, ${result.schema}`),
  );
}
