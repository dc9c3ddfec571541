/** Memory of each device over time: what is reserved, what is allocated by which line, and the peak. */

import { h } from "../dom";
import { duration, exact, grouped, percent, size } from "../format";
import { type DeviceMemory, type LineMemory, placeText, type Result } from "../result";
import type { Tooltip } from "../tooltip";
import { place } from "./findings";
import { type Column, sortable } from "./table";

const SHOWN_AT_FIRST = 10;

/** What a part of the allocated memory belongs to. */
interface Band {
  name: string;
  colour: string;
  values: number[];
}

interface Row {
  line: LineMemory | null;
  bytes: number;
  colour: string;
}

/** Null where allocations were not recorded one by one. */
export function memory(result: Result, tooltip: Tooltip): HTMLElement | null {
  const devices = result.memory ?? [];
  if (!devices.length) return null;
  return h(
    "section",
    { "aria-labelledby": "memory-title", class: "memory lines" },
    h("h2", { id: "memory-title" }, "Memory over time"),
    ...devices.flatMap((device) => [devices.length > 1 && h("h3", {}, `Device ${device.device}`), plot(device, result, tooltip), table(device)]),
  );
}

/** The first lines one on another, on top of the rest: their heights add up to what is allocated. */
function bandsOf({ allocated, lines }: DeviceMemory): Band[] {
  const known = lines.filter(({ over_time }) => over_time.length === allocated.length);
  const rest = allocated.map((bytes, i) => known.reduce((left, { over_time }) => left - over_time[i]!, bytes));
  const bands = known.map(({ where, over_time }, i): Band => ({ name: placeText(where), colour: colourOf(i), values: over_time }));
  return [{ name: "other lines, or before the recording", colour: "hold-other", values: rest }, ...bands];
}

function colourOf(rank: number): string {
  return rank < 5 ? `hold-${rank + 1}` : "hold-other";
}

/** When the drawn time begins, in ns from the start of the first step; 0 if that is nearly the same. */
function beginsAt({ start_ns, end_ns }: DeviceMemory, { steps }: Result): number {
  const apart = start_ns - steps.start_ns;
  return Math.abs(apart) < 0.01 * (end_ns - start_ns) ? 0 : apart;
}

function plot(device: DeviceMemory, result: Result, tooltip: Tooltip): HTMLElement {
  const { allocated, reserved, start_ns, end_ns, peak_ns, allocated_bytes, reserved_bytes } = device;
  const count = allocated.length;
  const most = Math.max(...allocated, ...reserved, 1);
  const length = Math.max(end_ns - start_ns, 1);
  const begins = beginsAt(device, result);
  const bands = bandsOf(device);
  const peak = `peak: ${size(allocated_bytes)} allocated, at ${duration(begins + peak_ns - start_ns)}`;
  const facts = reserved_bytes === null ? peak : `${peak}; at most ${size(reserved_bytes)} reserved`;
  const none = allocated.map(() => 0);
  const drawing = h("div", { class: "memory-areas", role: "img", "aria-label": `Memory of device ${device.device}: ${facts}` });
  const area = (look: string, above: number[], below: number[], thick = 0) => {
    const element = h("i", { class: look });
    element.style.clipPath = outline(above, below, most, thick);
    drawing.append(element);
  };
  if (reserved.length === count) {
    area("memory-reserved", reserved, none);
    area("memory-edge", reserved, reserved, 1.5);
  }
  let below = none;
  for (const { colour, values } of bands) {
    const above = below.map((bytes, i) => bytes + values[i]!);
    area(colour, above, below);
    below = above;
  }
  const mark = h("i", { class: "memory-peak" });
  mark.style.left = `${(100 * (peak_ns - start_ns)) / length}%`;
  drawing.append(mark);
  drawing.addEventListener("pointerleave", () => tooltip.hide());
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = Math.min(Math.max(Math.floor((count * (event.clientX - box.left)) / box.width), 0), count - 1);
    const shown = bands.filter(({ values }) => values[at]! > 0).reverse();
    tooltip.show(
      [
        `${size(allocated[at]!)} allocated at ${duration(begins + (length * at) / count)}`,
        ...(reserved[at] === undefined ? [] : [`${size(reserved[at])} reserved`]),
        ...shown.map(({ name, values }) => `${size(values[at]!)}: ${name}`),
      ],
      event.clientX,
      event.clientY,
    );
  });
  return h(
    "figure",
    { class: "panel" },
    h("figcaption", {}, h("b", {}, facts), h("div", {}, "The line above is what is reserved, the areas are what is allocated, by line. The dashes mark the peak." + (begins ? ` Times count from the start of ${result.steps.found_by === "whole" ? "the run" : "the first step"}.` : ""))),
    h(
      "div",
      { class: "memory-plot" },
      h("div", { class: "memory-most" }, h("span", {}, size(most)), h("span", {}, "0")),
      drawing,
      h("div", { class: "memory-times" }, h("span", {}, begins ? duration(begins) : "0"), h("span", { title: exact(begins + length) }, duration(begins + length))),
    ),
  );
}

/** The area between two amounts, each a step function; `thick` px are added below. */
function outline(above: number[], below: number[], most: number, thick: number): string {
  const point = (i: number, bytes: number, px: number) => `${(100 * i) / above.length}% ${px ? `calc(${100 - (100 * bytes) / most}% + ${px}px)` : `${100 - (100 * bytes) / most}%`}`;
  const forth = above.flatMap((bytes, i) => [point(i, bytes, 0), point(i + 1, bytes, 0)]);
  const back = below.flatMap((bytes, i) => [point(i, bytes, thick), point(i + 1, bytes, thick)]).reverse();
  return `polygon(${[...forth, ...back].join()})`;
}

function table(device: DeviceMemory): HTMLElement {
  const whole = device.allocated_bytes;
  const unknown = device.lines.reduce((left, { bytes }) => left - bytes, whole);
  const rows: Row[] = device.lines.map((line, i) => ({ line, bytes: line.bytes, colour: colourOf(i) }));
  if (unknown > 0) rows.push({ line: null, bytes: unknown, colour: "hold-other" });
  rows.sort((one, other) => other.bytes - one.bytes);
  const textOf = ({ line }: Row) => (line ? `${placeText(line.where)} ${line.where.function ?? ""}` : "allocated before the recording, or by no known line");
  const columns: Column<Row>[] = [
    {
      title: "Line",
      hint: "the line whose allocations hold the memory at the peak",
      key: textOf,
      cell: (row) => h("span", { class: "memory-line" }, h("i", { class: `swatch ${row.colour}` }), row.line ? place(row.line.where) : h("span", { class: "muted" }, textOf(row))),
    },
    { title: "At the peak", hint: "bytes at the time when most is allocated", key: ({ bytes }) => bytes, cell: ({ bytes }) => size(bytes) },
    { title: "Share", hint: "of what is allocated", key: ({ bytes }) => bytes, cell: ({ bytes }) => percent(bytes, whole) },
    { title: "Blocks", hint: "how many allocations", key: ({ line }) => line?.count ?? 0, cell: ({ line }) => (line ? grouped(line.count) : "") },
  ];
  const shown = sortable<Row>({ one: "line", placeholder: "Filter by file, function", label: `Filter the memory of device ${device.device}`, columns, text: textOf, search: null }, SHOWN_AT_FIRST);
  shown.show(rows);
  return shown.element;
}
