/** Keys, and the list of them that `?` shows. */

import { h } from "./dom";
import type { Timelines } from "./timeline/timelines";

const KEYS: [string, string][] = [
  ["A D ← →", "move; the arrows once the timeline was clicked"],
  ["W S + −", "zoom in, out"],
  ["↑ ↓", "scroll the tracks"],
  ["f", "fit the steps, then the whole run"],
  ["/", "search; n and N for the next and previous match"],
  ["[ ]", "previous, next event in the row"],
  ["l", "from a launch to its op and back"],
  ["z", "zoom to the selected event"],
  ["e", "full window"],
  ["Esc", "let go: details, instances, search, the stretch, full window"],
  ["?", "this list"],
];
const KEYS_OF_TWO: [string, string][] = [
  ["k", "lock the two timelines together, or let go"],
  [", .", "previous, next step, in both"],
];
const POINTER: [string, string][] = [
  ["drag", "move"],
  ["wheel", "zoom, once the timeline was clicked; Ctrl + wheel or pinch at any time"],
  ["Shift + drag", "measure a stretch, and zoom to it; the table of kernels is then of that"],
  ["click", "select; a double click zooms to it"],
];
const STEP = 0.18;
const ZOOM = 1.5;
const SCROLL = 60;

export function helpDialog(isPair: boolean): HTMLDialogElement {
  const list = (keys: [string, string][]) =>
    h("dl", { class: "keys" }, ...keys.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]));
  const dialog = h(
    "dialog",
    { class: "help", "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    list(isPair ? [...KEYS, ...KEYS_OF_TWO] : KEYS),
    h("h2", {}, "Mouse and touch, on the timeline"),
    list(POINTER),
    h("button", { click: () => dialog.close() }, "Close"),
  );
  document.body.append(dialog);
  return dialog;
}

export function listenToKeys(timelines: Timelines | null, help: HTMLDialogElement): void {
  const anywhere: Record<string, () => void> = { "?": () => (help.open ? help.close() : help.showModal()) };
  const active: Record<string, () => void> = {}; // what the page itself scrolls by
  if (timelines) {
    Object.assign(anywhere, {
      "/": () => timelines.focusSearch(),
      n: () => timelines.nextMatch(1),
      N: () => timelines.nextMatch(-1),
      f: () => timelines.fit(),
      e: () => timelines.expand(),
      Escape: () => timelines.escape(),
      a: () => timelines.current.move(-STEP),
      d: () => timelines.current.move(STEP),
      w: () => timelines.current.zoomBy(1 / ZOOM),
      s: () => timelines.current.zoomBy(ZOOM),
      "+": () => timelines.current.zoomBy(1 / ZOOM),
      "=": () => timelines.current.zoomBy(1 / ZOOM),
      "-": () => timelines.current.zoomBy(ZOOM),
      "[": () => timelines.current.neighbour(-1),
      "]": () => timelines.current.neighbour(1),
      l: () => timelines.current.jump(),
      z: () => timelines.current.zoomToSelected(),
      k: () => timelines.toggleLock(),
      ",": () => timelines.goToStep(-1),
      ".": () => timelines.goToStep(1),
    });
    Object.assign(active, {
      ArrowLeft: () => timelines.current.move(-STEP),
      ArrowRight: () => timelines.current.move(STEP),
      ArrowUp: () => timelines.current.scrollBy(-SCROLL),
      ArrowDown: () => timelines.current.scrollBy(SCROLL),
    });
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || (help.open && event.key !== "?")) return;
    if (event.target instanceof HTMLInputElement) return;
    const action = anywhere[event.key] ?? (timelines?.isActive ? active[event.key] : undefined);
    if (!action) return;
    event.preventDefault();
    if (event.key !== "?" && event.key !== "Escape") timelines?.reveal();
    action();
  });
}
