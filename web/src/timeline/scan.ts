/**
 * What of a lane there is to draw, at no more than a few rectangles a pixel: an event of a pixel or more is one
 * rectangle, and those too small to be seen alone are drawn together, as the longest of them, as strong as the part
 * of the pixel that they cover.
 */

import { firstVisible, gallop, type Rows } from "./rows";

/** Time to pixels: `from` is at x = 0. */
export interface Scale {
  from: number;
  to: number;
  width: number;
}

/** Receives row, left and right edge, and the part covered: 1 for an event drawn alone. */
export type Emit = (row: number, left: number, right: number, covered: number) => void;

export function scan(rows: Rows, first: number, last: number, scale: Scale, emit: Emit): void {
  const { start, end } = rows;
  const { from, to, width } = scale;
  const pixel = (to - from) / width;
  let column = Number.NEGATIVE_INFINITY; // where the last event drawn alone began
  let i = firstVisible(rows, from, first, last);
  while (i < last && start[i]! < to) {
    const left = (start[i]! - from) / pixel;
    const here = Math.floor(left);
    const isWide = end[i]! - start[i]! >= pixel;
    if (isWide && here !== column) {
      emit(i, Math.max(left, -1), Math.min((end[i]! - from) / pixel, width + 1), 1);
      column = here;
      i++;
      continue;
    }
    let next = gallop(start, from + (here + 1) * pixel, i + 1, last);
    if (!isWide && next - 1 > i && end[next - 1]! - start[next - 1]! >= pixel) next--;
    const covered = (rows.covered[next]! - rows.covered[i]!) / pixel;
    emit(rows.longest.at(i, next), here, here + 1, Math.min(covered, 1));
    i = next;
  }
}
