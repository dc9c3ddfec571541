/** A table to sort by any column, to filter, and to unfold. */

import { h, replaceChildren } from "../dom";
import { grouped, plural } from "../format";

const SHOWN_AT_FIRST = 50;

export interface Column<Row> {
  title: string;
  hint: string;
  key: (row: Row) => number | string;
  cell: (row: Row) => HTMLElement | string;
}

export interface TableOf<Row> {
  /** What a row is called: "line". */
  one: string;
  placeholder: string;
  label: string;
  columns: Column<Row>[];
  /** The text that a filter looks into. */
  text: (row: Row) => string;
  /** What "find" in a row looks for on the timeline; null where there is none. */
  search: ((row: Row) => void) | null;
}

export interface SortableTable<Row> {
  element: HTMLElement;
  show(rows: Row[]): void;
}

export function sortable<Row>(about: TableOf<Row>, atFirst = SHOWN_AT_FIRST): SortableTable<Row> {
  const { columns } = about;
  const state = { rows: [] as Row[], column: -1, rising: false, filter: "", isAll: false };
  const body = h("tbody");
  const count = h("span", { class: "muted", "aria-live": "polite" });
  const more = h("button", { click: () => ((state.isAll = true), draw()) }, "Show all");
  const heads = columns.map((column, i) =>
    h("th", { scope: "col", "aria-sort": "none" }, h("button", { title: column.hint, click: () => sortBy(i) }, column.title)),
  );
  const filter = h("input", {
    type: "search",
    placeholder: about.placeholder,
    "aria-label": about.label,
    spellcheck: "false",
    input: () => ((state.filter = filter.value), draw()),
  });

  const sortBy = (column: number) => {
    const first = state.rows[0];
    if (first === undefined) return;
    state.rising = state.column === column ? !state.rising : typeof columns[column]!.key(first) === "string";
    state.column = column;
    draw();
  };

  const draw = () => {
    const sought = state.filter.toLowerCase();
    const chosen = state.rows.filter((row) => about.text(row).toLowerCase().includes(sought));
    const column = columns[state.column];
    if (column) chosen.sort((a, b) => compare(column.key(a), column.key(b)) * (state.rising ? 1 : -1));
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== state.column ? "none" : state.rising ? "ascending" : "descending"));
    const shown = state.isAll ? chosen : chosen.slice(0, atFirst);
    replaceChildren(body, ...shown.map(rowOf));
    replaceChildren(count, `${shown.length < chosen.length ? `${grouped(shown.length)} of ` : ""}${plural(chosen.length, about.one)}`);
    more.hidden = shown.length === chosen.length;
  };

  const rowOf = (row: Row): HTMLElement => {
    const cells = columns.map((column) => h("td", {}, column.cell(row)));
    const search = about.search;
    if (search && about.text(row)) {
      const title = `Find this ${about.one}'s events on the timeline`;
      cells[0]!.append(h("button", { class: "find", title, click: () => search(row) }, "find"));
    }
    return h("tr", {}, ...cells);
  };

  const table = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body);
  const element = h("div", {}, h("div", { class: "toolbar" }, filter, count), scrollable(table), more);
  return {
    element,
    show: (rows) => {
      state.rows = rows;
      draw();
    },
  };
}

function compare(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

/** A table in a box that scrolls sideways, by the keyboard too. */
export function scrollable(table: HTMLElement, width = ""): HTMLElement {
  return h("div", { class: `table-scroll ${width}`, tabindex: 0, role: "group", "aria-label": "Table that scrolls sideways" }, table);
}
