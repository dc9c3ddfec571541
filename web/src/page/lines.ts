/** Cost by source line: a table to sort and to filter. */

import { h, replaceChildren } from "../dom";
import { duration, exact, grouped, plural, rate } from "../format";
import { type LineCost, over, placeText, type Result } from "../result";
import { place } from "./findings";

const SHOWN_AT_FIRST = 50;

interface Column {
  title: string;
  hint: string;
  key: (line: LineCost) => number | string;
  cell: (line: LineCost) => HTMLElement | string;
}

const ns = (value: number) => h("span", { title: exact(value), class: value === 0 ? "is-zero" : "" }, value === 0 ? "0" : duration(value));

const columns = (steps: number): Column[] => [
  { title: "Line", hint: "file, line and function", key: (line) => placeText(line.where), cell: (line) => place(line.where) },
  { title: "Device", hint: "device time of the ops it launched", key: (line) => line.device_ns, cell: (line) => ns(line.device_ns) },
  { title: "Device idle", hint: "device idle because of it", key: (line) => line.idle_ns, cell: (line) => ns(line.idle_ns) },
  {
    title: "Cause",
    hint: "the largest cause of that idle time",
    key: (line) => line.idle_cause ?? "",
    cell: (line) => (line.idle_cause ? h("span", { class: "cause" }, h("i", { class: `swatch is-idle idle-${line.idle_cause}` }), line.idle_cause) : ""),
  },
  { title: "Host waits", hint: "host blocked", key: (line) => line.wait_ns, cell: (line) => ns(line.wait_ns) },
  { title: "Launches", hint: "calls that put work on a device", key: (line) => line.launches, cell: (line) => rate(line.launches, steps) },
  { title: "Ops", hint: "device ops", key: (line) => line.device_ops, cell: (line) => rate(line.device_ops, steps) },
];

export function lines(result: Result, search: ((text: string) => void) | null): HTMLElement {
  const state = { column: -1, rising: false, filter: "", isAll: false };
  const body = h("tbody");
  const count = h("span", { class: "muted", "aria-live": "polite" });
  const more = h("button", { click: () => ((state.isAll = true), show()) }, "Show all");
  const shape = columns(result.steps.count);
  const heads = shape.map((column, i) =>
    h("th", { scope: "col", "aria-sort": "none" }, h("button", { title: column.hint, click: () => sortBy(i) }, column.title)),
  );

  const sortBy = (column: number) => {
    state.rising = state.column === column ? !state.rising : typeof shape[column]!.key(result.lines[0]!) === "string";
    state.column = column;
    show();
  };

  const show = () => {
    const sought = state.filter.toLowerCase();
    const chosen = result.lines.filter((line) => textOf(line).includes(sought));
    const column = shape[state.column];
    if (column) chosen.sort((a, b) => compare(column.key(a), column.key(b)) * (state.rising ? 1 : -1));
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== state.column ? "none" : state.rising ? "ascending" : "descending"));
    const shown = state.isAll ? chosen : chosen.slice(0, SHOWN_AT_FIRST);
    replaceChildren(body, ...shown.map((line) => row(line, shape, search)));
    replaceChildren(count, `${shown.length < chosen.length ? `${grouped(shown.length)} of ` : ""}${plural(chosen.length, "line")}`);
    more.hidden = shown.length === chosen.length;
  };

  const filter = h("input", {
    type: "search",
    placeholder: "Filter by file, function, cause",
    "aria-label": "Filter the lines",
    spellcheck: "false",
    input: () => ((state.filter = filter.value), show()),
  });
  show();
  return h(
    "section",
    { "aria-labelledby": "lines-title", class: "lines" },
    h("h2", { id: "lines-title" }, `Cost by line, ${over(result)}`),
    result.lines.length === 0
      ? h("p", { class: "none" }, "No line is known to have put work on a device.")
      : h("div", {}, h("div", { class: "toolbar" }, filter, count), h("div", { class: "table-scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body)), more),
  );
}

function row(line: LineCost, columns: Column[], search: ((text: string) => void) | null): HTMLElement {
  const cells = columns.map((column) => h("td", {}, column.cell(line)));
  const text = placeText(line.where);
  if (search && text) {
    cells[0]!.append(h("button", { class: "find", title: "Find this line's events on the timeline", click: () => search(text) }, "find"));
  }
  return h("tr", {}, ...cells);
}

function textOf({ where, idle_cause }: LineCost): string {
  return [placeText(where), where.function, where.op, idle_cause].join(" ").toLowerCase();
}

function compare(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
