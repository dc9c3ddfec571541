/** The panel about the selected event. */

import { h, replaceChildren } from "../dom";
import { linkOfText } from "../editor";
import { duration, exact, plural } from "../format";
import { detailOf, durationOf, kindText, nameOf, placeOf } from "./describe";
import { callOf, laneOf, opsOf, type Picture, stackOf } from "./picture";

export interface DetailsActions {
  go(event: number): void;
  zoom(event: number): void;
  search(text: string): void;
  close(): void;
}

const MOST_FRAMES = 60;

/** `run` is the run's name, where there are two. */
export function showDetails(panel: HTMLElement, picture: Picture, run: string, event: number, actions: DetailsActions): void {
  panel.hidden = event < 0;
  if (event < 0) return replaceChildren(panel);
  const { start, end } = picture.rows;
  const ns = durationOf(picture, event);
  const place = placeOf(picture, event);
  const facts: [string, string | Node][] = [
    ...(run ? [["Run", run] as [string, string]] : []),
    ["Kind", kindText(picture, event)],
    ["Track", picture.tracks[picture.lanes[laneOf(picture, event)]!.track]!.label],
    ["Start", exact(start[event]! - picture.window[0])],
    ["Duration", `${duration(ns)} (${exact(ns)})`],
    ["End", exact(end[event]! - picture.window[0])],
  ];
  if (place) {
    const find = h("button", { class: "link code", click: () => actions.search(place), title: "Find all events of this line" }, place);
    facts.push(["Line", h("span", {}, find, linkOfText(place))]);
  }
  if (detailOf(picture, event)) facts.push(["More", detailOf(picture, event)]);
  facts.push(...links(picture, event, actions));

  const stack = stackOf(picture, event);
  replaceChildren(
    panel,
    h(
      "div",
      { class: "details-head" },
      h("h3", { class: "code details-name" }, nameOf(picture, event)),
      h("button", { click: () => actions.zoom(event), title: "Zoom to it (z)" }, "Zoom to it"),
      h("button", { click: () => actions.close(), "aria-label": "Close the details", title: "Close (Esc)" }, "✕"),
    ),
    h("dl", { class: "facts" }, ...facts.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])),
    stack.length > 0 && stackList(stack),
  );
}

function links(picture: Picture, event: number, actions: DetailsActions): [string, Node][] {
  const jump = (to: number, text: string) => h("button", { class: "link code", click: () => actions.go(to), title: "Go there (l)" }, text);
  const call = callOf(picture, event);
  if (call >= 0) {
    const late = picture.rows.start[event]! - picture.rows.start[call]!;
    return [
      ["Launched by", jump(call, nameOf(picture, call))],
      ["After", h("span", {}, `${duration(late)} after that call began`)],
    ];
  }
  const ops = opsOf(picture, event);
  if (!ops.length) return [];
  const first = ops[0]!;
  return [[ops.length === 1 ? "Launches" : `Launches ${plural(ops.length, "op")}, first`, jump(first, nameOf(picture, first))]];
}

function stackList(stack: string[]): HTMLElement {
  const frames = stack.slice(0, MOST_FRAMES).map((frame) => h("li", {}, frame, linkOfText(frame)));
  const more = stack.length - frames.length;
  return h(
    "div",
    { class: "stack" },
    h("h4", {}, "Stack, innermost first"),
    h("ol", { class: "code" }, ...frames, more > 0 && h("li", {}, `… ${plural(more, "frame")} more`)),
  );
}
