/** Which event is at a point. */

import { firstLaneBelow, type Layout } from "./layout";
import type { Picture } from "./picture";
import { firstVisible, lowerBound } from "./rows";
import type { Scale } from "./scan";

const REACH = 3; // pixels: how far beside a thin event one may point

/** -1 where there is none. `y` is from the top of the layout. */
export function eventAt(picture: Picture, layout: Layout, scale: Scale, x: number, y: number): number {
  const placed = layout.lanes[firstLaneBelow(layout, y)];
  if (!placed || placed.top > y) return -1;
  const { rows } = picture;
  const { first, last } = picture.lanes[placed.lane]!;
  const pixel = (scale.to - scale.from) / scale.width;
  const time = scale.from + x * pixel;
  const under = firstVisible(rows, time, first, last);
  if (under < last && rows.start[under]! <= time) return under;
  const from = firstVisible(rows, time - REACH * pixel, first, last);
  const to = lowerBound(rows.start, time + REACH * pixel, from, last);
  return from < to ? rows.longest.at(from, to) : -1;
}
