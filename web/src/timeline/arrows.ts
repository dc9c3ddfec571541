/** Arrows from a launch to what it put on the device. */

import { type Layout } from "./layout";
import { callOf, laneOf, opsOf, type Picture, TrackKind } from "./picture";
import { firstVisible, lowerBound } from "./rows";
import type { Scale } from "./scan";

const MOST_OF_ONE_CALL = 60;
const MOST_IN_SIGHT = 160;

/** (call, op) of one event, whichever end it is; of a call with very many ops the first and last ones. */
export function arrowsOf(picture: Picture, event: number): [number, number][] {
  const call = callOf(picture, event);
  if (call >= 0) return [[call, event]];
  const ops = opsOf(picture, event);
  const shown = ops.length <= MOST_OF_ONE_CALL ? ops : [...ops.slice(0, MOST_OF_ONE_CALL - 1), ops.at(-1)!];
  return Array.from(shown, (op) => [event, op]);
}

/** All arrows that end in sight, when they are few enough to tell apart; else none. */
export function arrowsInSight(picture: Picture, layout: Layout, scale: Scale): [number, number][] {
  const arrows: [number, number][] = [];
  for (const { track } of layout.tracks) {
    if (track.kind !== TrackKind.STREAM) continue;
    for (let i = track.firstLane; i < track.lastLane; i++) {
      const lane = picture.lanes[i]!;
      const first = firstVisible(picture.rows, scale.from, lane.first, lane.last);
      const last = lowerBound(picture.rows.start, scale.to, first, lane.last);
      if (arrows.length + last - first > MOST_IN_SIGHT) return [];
      for (let op = first; op < last; op++) if (callOf(picture, op) >= 0) arrows.push([callOf(picture, op), op]);
    }
  }
  return arrows;
}

export function drawArrows(
  context: CanvasRenderingContext2D,
  picture: Picture,
  layout: Layout,
  scale: Scale,
  arrows: [number, number][],
  isStrong: boolean,
): void {
  const at = (time: number) => Math.min(Math.max(((time - scale.from) / (scale.to - scale.from)) * scale.width, -4000), scale.width + 4000);
  context.lineWidth = isStrong ? 1.5 : 1;
  context.globalAlpha = isStrong ? 1 : 0.35;
  for (const [call, op] of arrows) {
    const from = layout.lanes[layout.placeOfLane[laneOf(picture, call)]!];
    const to = layout.lanes[layout.placeOfLane[laneOf(picture, op)]!];
    if (!from || !to) continue;
    const isUp = to.top < from.top;
    const x1 = at(picture.rows.start[call]!);
    const y1 = from.top + (isUp ? 0 : from.height - 1);
    const x2 = at(picture.rows.start[op]!);
    const y2 = to.top + (isUp ? to.height - 1 : 0);
    const bend = (y2 - y1) / 2;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    context.stroke();
    const tip = isUp ? 5 : -5;
    context.beginPath();
    context.moveTo(x2, y2);
    context.lineTo(x2 - 3, y2 + tip);
    context.lineTo(x2 + 3, y2 + tip);
    context.fill();
  }
  context.globalAlpha = 1;
}
