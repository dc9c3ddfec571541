/** Cost by source line: a table to sort and to filter. */

import { h } from "../dom";
import { duration, exact, rate } from "../format";
import { type LineCost, over, placeText, type Result } from "../result";
import { place } from "./findings";
import { type Column, sortable } from "./table";

export const ns = (value: number) => h("span", { title: exact(value), class: value === 0 ? "is-zero" : "" }, value === 0 ? "0" : duration(value));

const columns = (steps: number): Column<LineCost>[] => [
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
  const table = sortable<LineCost>({
    one: "line",
    placeholder: "Filter by file, function, cause",
    label: "Filter the lines",
    columns: columns(result.steps.count),
    text: ({ where, idle_cause }) => [placeText(where), where.function, where.op, idle_cause].join(" "),
    search: search && ((line) => search(placeText(line.where))),
  });
  table.show(result.lines);
  return h(
    "section",
    { "aria-labelledby": "lines-title", class: "lines" },
    h("h2", { id: "lines-title" }, `Cost by line, ${over(result)}`),
    result.lines.length === 0 ? h("p", { class: "none" }, "No line is known to have put work on a device.") : table.element,
  );
}
