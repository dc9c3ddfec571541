/** The names of the tracks, beside the canvas: buttons that open and close them. */

import { h } from "../dom";
import type { Layout } from "./layout";
import { TrackKind } from "./picture";

export function showLabels(column: HTMLElement, layout: Layout, toggle: (track: number) => void): void {
  for (const { track, top, height, isOpen } of layout.tracks) {
    const canClose = track.kind !== TrackKind.STEPS && track.lastLane - track.firstLane > 1;
    const text = () => h("span", {}, track.label);
    const label = canClose
      ? h("button", { class: "label", "aria-expanded": String(isOpen), title: track.label, click: () => toggle(track.index) }, text())
      : h("div", { class: "label", title: track.label }, text());
    label.style.top = `${top}px`;
    label.style.height = `${height}px`;
    column.append(label);
  }
}
