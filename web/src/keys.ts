/** Keys, and the list of them that `?` shows. */

import { h } from "./dom";
import type { Timeline } from "./timeline/timeline";

const KEYS: [string, string][] = [
  ["A D ← →", "move; the arrows once the timeline was clicked"],
  ["W S + −", "zoom in, out"],
  ["↑ ↓", "scroll the tracks"],
  ["f", "fit the steps, then the whole recording"],
  ["/", "search; n and N for the next and previous match"],
  ["[ ]", "previous, next event in the row"],
  ["l", "from a launch to its op and back"],
  ["z", "zoom to the selected event"],
  ["e", "full window"],
  ["Esc", "let go: details, instances, search, full window"],
  ["?", "this list"],
];
const POINTER: [string, string][] = [
  ["drag", "move"],
  ["wheel", "zoom, once the timeline was clicked; Ctrl + wheel or pinch at any time"],
  ["Shift + drag", "measure a stretch, and zoom to it"],
  ["click", "select; a double click zooms to it"],
];
const STEP = 0.18;
const ZOOM = 1.5;
const SCROLL = 60;

export function helpDialog(): HTMLDialogElement {
  const list = (keys: [string, string][]) =>
    h("dl", { class: "keys" }, ...keys.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]));
  const dialog = h(
    "dialog",
    { class: "help", "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    list(KEYS),
    h("h2", {}, "Mouse and touch, on the timeline"),
    list(POINTER),
    h("button", { click: () => dialog.close() }, "Close"),
  );
  document.body.append(dialog);
  return dialog;
}

export function listenToKeys(timeline: Timeline | null, help: HTMLDialogElement): void {
  const anywhere: Record<string, () => void> = { "?": () => (help.open ? help.close() : help.showModal()) };
  const active: Record<string, () => void> = {}; // what the page itself scrolls by
  if (timeline) {
    Object.assign(anywhere, {
      "/": () => timeline.focusSearch(),
      n: () => timeline.nextMatch(1),
      N: () => timeline.nextMatch(-1),
      f: () => timeline.fit(),
      e: () => timeline.expand(),
      Escape: () => timeline.escape(),
      a: () => timeline.move(-STEP),
      d: () => timeline.move(STEP),
      w: () => timeline.zoomBy(1 / ZOOM),
      s: () => timeline.zoomBy(ZOOM),
      "+": () => timeline.zoomBy(1 / ZOOM),
      "=": () => timeline.zoomBy(1 / ZOOM),
      "-": () => timeline.zoomBy(ZOOM),
      "[": () => timeline.neighbour(-1),
      "]": () => timeline.neighbour(1),
      l: () => timeline.jump(),
      z: () => timeline.zoomToSelected(),
    });
    Object.assign(active, {
      ArrowLeft: () => timeline.move(-STEP),
      ArrowRight: () => timeline.move(STEP),
      ArrowUp: () => timeline.scrollBy(-SCROLL),
      ArrowDown: () => timeline.scrollBy(SCROLL),
    });
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || (help.open && event.key !== "?")) return;
    if (event.target instanceof HTMLInputElement) return;
    const action = anywhere[event.key] ?? (timeline?.isActive ? active[event.key] : undefined);
    if (!action) return;
    event.preventDefault();
    if (event.key !== "?" && event.key !== "Escape") timeline?.reveal();
    action();
  });
}
