/** Search: which events have a name or a source line with the text in it. */

import type { Picture } from "./picture";
import { lowerBound, type Rows, rowsOf } from "./rows";

export interface Found {
  text: string;
  /** Events, in the picture's order, so that each lane's are a slice. */
  events: Float64Array;
  /** The same, as rows that can be drawn. */
  rows: Rows;
  name: Int32Array;
  byTime: Uint32Array | null;
}

export function find(picture: Picture, text: string): Found {
  const sought = text.toLowerCase();
  const isHit = Uint8Array.from(picture.strings, (string) => (string.toLowerCase().includes(sought) ? 1 : 0));
  const { name, place, rows } = picture;
  const events: number[] = [];
  for (let i = 0; i < name.length; i++) {
    if (isHit[name[i]!] || (place[i]! >= 0 && isHit[place[i]!])) events.push(i);
  }
  const found = Float64Array.from(events);
  const start = found.map((event) => rows.start[event]!);
  return {
    text,
    events: found,
    rows: rowsOf(start, found.map((event) => rows.end[event]!), Uint8Array.from(events, (event) => rows.kind[event]!)),
    name: Int32Array.from(events, (event) => name[event]!),
    byTime: null,
  };
}

/** Positions in `events` by time; sorted when first asked for, since most searches are typed on. */
export function inOrderOfTime(found: Found): Uint32Array {
  const { start } = found.rows;
  return (found.byTime ??= Uint32Array.from(start.keys()).sort((a, b) => start[a]! - start[b]!));
}

/** The slice of the found events that lies in a lane's range. */
export function within(found: Found, first: number, last: number): [number, number] {
  const from = lowerBound(found.events, first, 0, found.events.length);
  return [from, lowerBound(found.events, last, from, found.events.length)];
}
