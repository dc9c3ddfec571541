/** An event in words. */

import { duration, exact } from "../format";
import { IDLE_KIND, KINDS } from "../palette";
import { type Picture } from "./picture";

const LONGEST_NAME = 160;

export function nameOf(picture: Picture, event: number): string {
  return picture.strings[picture.name[event]!] ?? "";
}

export function kindText(picture: Picture, event: number): string {
  const kind = picture.rows.kind[event]!;
  return kind >= IDLE_KIND ? "idle" : (KINDS[kind]?.label ?? "event");
}

export function placeOf(picture: Picture, event: number): string {
  return picture.strings[picture.place[event]!] ?? "";
}

export function detailOf(picture: Picture, event: number): string {
  return picture.strings[picture.detail[event]!] ?? "";
}

export function durationOf(picture: Picture, event: number): number {
  return picture.rows.end[event]! - picture.rows.start[event]!;
}

export function tooltipOf(picture: Picture, event: number): string[] {
  const name = nameOf(picture, event);
  const ns = durationOf(picture, event);
  return [
    name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name,
    `${kindText(picture, event)} · ${duration(ns)} (${exact(ns)})`,
    placeOf(picture, event),
    detailOf(picture, event).slice(0, LONGEST_NAME),
  ].filter((line) => line !== "");
}
