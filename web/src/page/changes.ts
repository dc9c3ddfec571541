/** What changed between two runs, the largest change first: a table for waits, copies, kernels and lines each. */

import type { AnyChange, Comparison, CopyChange, Count, KernelChange, LineChange, Time, WaitChange } from "../comparison";
import { h, replaceChildren } from "../dom";
import { editorLink } from "../editor";
import { duration, exact, grouped, perStep, signed, size } from "../format";
import { placeText, type Where } from "../result";
import { fileAndLine, place } from "./findings";
import { scrollable } from "./table";

const SHOWN_AT_FIRST = 12;

type Search = ((text: string) => void) | null;

interface Column<T> {
  title: string;
  hint: string;
  cell(change: T): HTMLElement;
}

interface Table<T> {
  id: string;
  title: string;
  changes: T[];
  name(change: T): HTMLElement;
  sought(change: T): string;
  columns: Column<T>[];
  /** What the bar at the end of a row is of. */
  change(change: T): number;
}

export function waits({ waits }: Comparison, search: Search): HTMLElement | null {
  return table<WaitChange>(
    {
      id: "waits",
      title: "Waits, per step",
      changes: waits,
      ...named,
      columns: [
        { title: "Times", hint: "how often, per step", cell: ({ count }) => counts(count) },
        { title: "Host waits", hint: "host blocked", cell: ({ wait_ns }) => spans(wait_ns) },
        { title: "Exposed", hint: "device idle because of it", cell: ({ exposed_ns }) => spans(exposed_ns) },
      ],
      change: ({ exposed_ns }) => changeOf(exposed_ns),
    },
    search,
  );
}

export function copies({ copies }: Comparison, search: Search): HTMLElement | null {
  return table<CopyChange>(
    {
      id: "copies",
      title: "Copies, per step",
      changes: copies,
      name: (change) => h("span", {}, bothPlaces(change), detail(memory(change))),
      sought: named.sought,
      columns: [
        { title: "Times", hint: "how often, per step", cell: ({ count }) => counts(count) },
        { title: "Size", hint: "bytes copied, per step", cell: ({ bytes }) => pair(size(bytes.a), size(bytes.b), `${grouped(bytes.a)} → ${grouped(bytes.b)} bytes`) },
        { title: "Device", hint: "time of the copies on the device", cell: ({ device_ns }) => spans(device_ns) },
      ],
      change: ({ device_ns }) => changeOf(device_ns),
    },
    search,
  );
}

export function kernels({ kernels }: Comparison, search: Search): HTMLElement | null {
  return table<KernelChange>(
    {
      id: "kernels",
      title: "Kernels, per step",
      changes: kernels,
      name: (change) => h("span", {}, h("span", { class: "code kernel", title: change.name }, change.name), hasPlace(change) && h("span", { class: "detail" }, bothPlaces(change))),
      sought: ({ name }) => name,
      columns: [
        { title: "Times", hint: "how often, per step", cell: ({ count }) => counts(count) },
        { title: "Device", hint: "time on the device", cell: ({ device_ns }) => spans(device_ns) },
      ],
      change: ({ device_ns }) => changeOf(device_ns),
    },
    search,
  );
}

export function lines({ lines }: Comparison, search: Search): HTMLElement | null {
  return table<LineChange>(
    {
      id: "lines",
      title: "Cost by line, per step",
      changes: lines,
      ...named,
      columns: [
        { title: "Device", hint: "device time of the ops it launched", cell: ({ device_ns }) => spans(device_ns) },
        { title: "Device idle", hint: "device idle because of it", cell: ({ idle_ns }) => spans(idle_ns) },
        { title: "Host waits", hint: "host blocked", cell: ({ wait_ns }) => spans(wait_ns) },
      ],
      change: ({ cost_ns }) => changeOf(cost_ns),
    },
    search,
  );
}

/** How work gets to the device, where that differs. */
export function launches({ launches }: Comparison): HTMLElement | null {
  if (!launches) return null;
  const rows = (
    [
      ["calls that launch", launches.calls],
      ["graph launches", launches.graph_launches],
      ["kernels", launches.kernels],
      ["kernels in graphs", launches.kernels_in_graphs],
    ] as const
  ).filter(([, count]) => count.a !== count.b);
  if (!rows.length) return null;
  return section(
    "launches",
    "Launches, per step",
    scrollable(
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...["What", "A", "B"].map((title) => h("th", { scope: "col" }, h("span", {}, title))))),
        h("tbody", {}, ...rows.map(([name, count]) => h("tr", {}, h("td", {}, name), h("td", {}, perStep(count.a)), h("td", {}, h("b", {}, perStep(count.b)))))),
      ),
      "is-narrow",
    ),
  );
}

const named = {
  name: (change: AnyChange) => bothPlaces(change),
  sought: ({ where_a, where_b }: AnyChange) => placeText(where_b ?? where_a ?? NOWHERE),
};

const NOWHERE: Where = { file: null, line: null, line_is: null, function: null, op: null, called_from: null };

function table<T extends AnyChange>(of: Table<T>, search: Search): HTMLElement | null {
  if (!of.changes.length) return null;
  const largest = Math.max(...of.changes.map((change) => Math.abs(of.change(change))), 1);
  const heads = [["Where", ""], ["Status", ""], ...of.columns.map(({ title, hint }) => [title, hint]), ["Change", "what B takes longer; green where it takes less"]];
  const body = h("tbody");
  const more = h("button", { class: "more-rows", click: () => show(of.changes.length) }, `Show all ${grouped(of.changes.length)}`);
  const show = (count: number) => {
    replaceChildren(body, ...of.changes.slice(0, count).map((change) => row(change)));
    more.hidden = count >= of.changes.length;
  };
  const row = (change: T) => {
    const sought = of.sought(change);
    const find = search && sought !== "" && h("button", { class: "find", title: "Find it on the timelines", click: () => search(sought) }, "find");
    const cells = of.columns.map((column) => h("td", {}, column.cell(change)));
    return h("tr", { class: change.status === "within noise" ? "is-noise" : null }, h("td", {}, of.name(change), find), h("td", {}, status(change)), ...cells, h("td", {}, bar(of.change(change), largest)));
  };
  show(SHOWN_AT_FIRST);
  return section(
    of.id,
    of.title,
    scrollable(h("table", {}, h("thead", {}, h("tr", {}, ...heads.map(([title, hint]) => h("th", { scope: "col", title: hint || null }, h("span", {}, title))))), body)),
    more,
  );
}

function section(id: string, title: string, ...children: HTMLElement[]): HTMLElement {
  return h("section", { class: "changes", "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

function changeOf({ a, b }: Time): number {
  return b - a;
}

/** To the left and green what B takes less, to the right and red what it takes more. */
function bar(change: number, largest: number): HTMLElement {
  const fill = h("i", { class: change < 0 ? "less" : "more" });
  fill.style.width = `${(50 * Math.abs(change)) / largest}%`;
  return h("span", { class: "change", title: exact(change) }, h("span", {}, signed(change)), h("span", { class: "change-bar" }, fill));
}

function status({ status }: AnyChange): HTMLElement {
  return h("span", { class: `status ${status.replace(" ", "-")}` }, status === "within noise" ? "noise" : status);
}

function counts(count: Count): HTMLElement {
  return pair(perStep(count.a), perStep(count.b), `${count.a} → ${count.b}`);
}

function spans({ a, b }: Time): HTMLElement {
  const text = (ns: number) => (ns === 0 ? "0" : duration(ns));
  return pair(text(a), text(b), `${exact(a)} → ${exact(b)}`);
}

/** Two figures, or the one that both are. */
function pair(a: string, b: string, title: string): HTMLElement {
  if (a === b) return h("span", { class: "muted", title }, a);
  return h("span", { title }, h("span", { class: "was" }, `${a} → `), h("b", {}, b));
}

function hasPlace({ where_a, where_b }: AnyChange): boolean {
  return [where_a, where_b].some((where) => where && placeText(where) !== "");
}

/** One place for both; "train.py:12 → 14" where only the line differs. */
function bothPlaces({ where_a: a, where_b: b }: AnyChange): HTMLElement {
  const known = [a, b].filter((where) => where !== null && placeText(where) !== "");
  if (!known[0]) return h("span", { class: "muted" }, "no source line known");
  if (!a || !b || !known[1] || placeText(a) === placeText(b)) return place(known[0]);
  const at = fileAndLine(a);
  if (a.file !== b.file || b.line === null) return h("span", { class: "both" }, at, " → ", place(b));
  return h("span", { class: "both" }, at, " → ", h("span", { class: "code" }, String(b.line)), editorLink(b.file, b.line), " ", h("span", { class: "inside" }, [b.function, b.op].filter(Boolean).join(" · ")));
}

function detail(text: string): HTMLElement | false {
  return text !== "" && h("span", { class: "detail" }, text);
}

/** The direction, and what became of the host's memory, or what it is where it is one and the same. */
function memory({ direction, became, pageable, pinned, blocking }: CopyChange): string {
  if (became.length) return `${direction}, became ${became.join(", ")}`;
  const [isPageable, isPinned] = [pageable.a + pageable.b > 0, pinned.a + pinned.b > 0];
  const kind = isPageable === isPinned ? "" : isPageable ? "pageable" : "pinned";
  return [direction, kind, blocking.a + blocking.b > 0 ? "blocking" : ""].filter(Boolean).join(", ");
}
