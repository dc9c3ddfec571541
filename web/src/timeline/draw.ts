/** Draws a frame: everything that is on the canvas, from the state alone. */

import { duration } from "../format";
import type { Colours } from "../palette";
import { arrowsInSight, arrowsOf, drawArrows } from "./arrows";
import { type Found, within } from "./find";
import { firstLaneBelow, type Layout, type PlacedTrack } from "./layout";
import { Painter } from "./paint";
import { laneOf, type Picture, stepStarts, TrackKind } from "./picture";
import { lowerBound } from "./rows";
import { type Ticks, tickText, ticksOf } from "./ruler";
import type { Scale } from "./scan";

export const RULER_HEIGHT = 22;
const LEAST_STEP = 24; // pixels
const FONT = "11px ui-sans-serif, system-ui, sans-serif";

export interface Scene {
  picture: Picture;
  layout: Layout;
  colours: Colours;
  scale: Scale;
  /** Where the ruler counts from. */
  zero: number;
  height: number;
  scrollTop: number;
  selected: number;
  hovered: number;
  found: Found | null;
  /** The instances of a finding, and the stretch of time that is being measured. */
  spans: [number, number][];
  measured: [number, number] | null;
  /** The stretch that totals are of: a stripe below the ruler. */
  chosen: [number, number] | null;
  /** The time that is pointed at in the timeline beside this one. */
  pointed: number | null;
}

/** Returns how many rectangles it drew. */
export function drawScene(context: CanvasRenderingContext2D, scene: Scene): number {
  const { colours, scale, height } = scene;
  context.fillStyle = colours.background;
  context.fillRect(0, 0, scale.width, height);
  const ticks = ticksOf(scale.from - scene.zero, scale.to - scene.zero, scale.width, 90);
  drawGrid(context, scene, ticks);

  context.save();
  context.beginPath();
  context.rect(0, RULER_HEIGHT, scale.width, height - RULER_HEIGHT);
  context.clip();
  context.translate(0, RULER_HEIGHT - scene.scrollTop);
  const rectangles = drawLanes(context, scene) + drawQueue(context, scene);
  drawLinks(context, scene);
  outline(context, scene, scene.hovered, colours.text, 1);
  outline(context, scene, scene.selected, colours.mark, 2);
  context.restore();

  drawSpans(context, scene);
  if (scene.pointed !== null) {
    context.fillStyle = colours.mark;
    context.fillRect(Math.round(xOf(scale, scene.pointed)), RULER_HEIGHT, 1, height);
  }
  drawRuler(context, scene, ticks);
  if (scene.chosen) {
    const [left, right] = scene.chosen.map((time) => xOf(scale, time)) as [number, number];
    context.fillStyle = colours.accent;
    context.fillRect(left, RULER_HEIGHT - 3, Math.max(right - left, 2), 3);
  }
  return rectangles;
}

function xOf(scale: Scale, time: number): number {
  return ((time - scale.from) / (scale.to - scale.from)) * scale.width;
}

function drawGrid(context: CanvasRenderingContext2D, { colours, scale, zero, height, picture }: Scene, ticks: Ticks): void {
  context.fillStyle = colours.line;
  for (const time of ticks.times) {
    context.fillRect(Math.round(xOf(scale, time + zero)), RULER_HEIGHT, 1, height);
  }
  context.fillStyle = colours.muted;
  for (const time of stepsInSight(picture, scale)) context.fillRect(Math.round(xOf(scale, time)), RULER_HEIGHT, 1, height);
  const [from, to] = picture.window;
  context.fillStyle = colours.faint;
  const left = xOf(scale, from);
  const right = xOf(scale, to);
  if (left > 0) context.fillRect(0, RULER_HEIGHT, Math.min(left, scale.width), height);
  if (right < scale.width) context.fillRect(Math.max(right, 0), RULER_HEIGHT, scale.width, height);
}

/** Where steps begin, when there is room between them. */
function stepsInSight(picture: Picture, scale: Scale): Float64Array {
  const starts = stepStarts(picture);
  const from = lowerBound(starts, scale.from, 0, starts.length);
  const to = lowerBound(starts, scale.to, from, starts.length);
  return to - from > scale.width / LEAST_STEP ? new Float64Array() : starts.subarray(from, to);
}

function drawLanes(context: CanvasRenderingContext2D, scene: Scene): number {
  const { picture, layout, scale, found } = scene;
  const painter = new Painter(context, scene.colours);
  const bottom = scene.scrollTop + scene.height;
  const placed = [];
  for (let i = firstLaneBelow(layout, scene.scrollTop); i < layout.lanes.length; i++) {
    if (layout.lanes[i]!.top > bottom) break;
    placed.push(layout.lanes[i]!);
  }
  if (found) context.globalAlpha = 0.28;
  const names = found ? null : picture;
  for (const { lane, top, height } of placed) {
    const { first, last } = picture.lanes[lane]!;
    painter.lane(picture.rows, names, first, last, scale, top, height);
  }
  painter.flush(picture.rows, names, scale.width);
  context.globalAlpha = 1;
  if (found) {
    const matched = { strings: picture.strings, name: found.name };
    for (const { lane, top, height } of placed) {
      const [first, last] = within(found, picture.lanes[lane]!.first, picture.lanes[lane]!.last);
      painter.lane(found.rows, matched, first, last, scale, top, height);
    }
    painter.flush(found.rows, matched, scale.width);
  }
  return painter.rectangles;
}

/** The queue's depth as a filled curve: at each pixel the deepest it was. */
function drawQueue(context: CanvasRenderingContext2D, scene: Scene): number {
  const placed = scene.layout.tracks.find(({ track }) => track.kind === TrackKind.QUEUE);
  const { queueTime: times, queueDepth: depths, queuePeaks: peaks } = scene.picture;
  if (!placed || !times.length) return 0;
  const { scale, colours } = scene;
  const deepest = Math.max(depths[peaks.at(0, depths.length)]!, 1);
  const pixel = (scale.to - scale.from) / scale.width;
  let rectangles = 0;
  let run = { depth: 0, left: 0 };
  const endRun = (right: number) => {
    if (run.depth === 0) return;
    const height = Math.max((run.depth / deepest) * (placed.height - 2), 1);
    context.fillRect(run.left, placed.top + placed.height - height, right - run.left, height);
    rectangles++;
  };
  context.fillStyle = colours.queue;
  let holding = lowerBound(times, scale.from, 0, times.length) - 1;
  for (let x = 0; x < scale.width; x++) {
    const next = lowerBound(times, scale.from + (x + 1) * pixel, holding + 1, times.length);
    const first = Math.max(holding, 0);
    const depth = next > first ? depths[peaks.at(first, next)]! : 0;
    if (depth !== run.depth) {
      endRun(x);
      run = { depth, left: x };
    }
    holding = next - 1;
  }
  endRun(scale.width);
  drawQueueScale(context, scene, placed, deepest);
  return rectangles;
}

function drawQueueScale(context: CanvasRenderingContext2D, { colours, scale }: Scene, placed: PlacedTrack, deepest: number): void {
  if (!placed.isOpen) return;
  context.fillStyle = colours.line;
  context.fillRect(0, placed.top, scale.width, 1);
  context.font = FONT;
  context.textBaseline = "top";
  context.fillStyle = colours.muted;
  context.fillText(`${deepest.toLocaleString("en-US")} at most`, 4, placed.top + 3);
}

function drawLinks(context: CanvasRenderingContext2D, { picture, layout, scale, colours, selected, hovered }: Scene): void {
  context.strokeStyle = context.fillStyle = colours.muted;
  drawArrows(context, picture, layout, scale, arrowsInSight(picture, layout, scale), false);
  context.strokeStyle = context.fillStyle = colours.mark;
  for (const event of new Set([selected, hovered])) {
    if (event >= 0) drawArrows(context, picture, layout, scale, arrowsOf(picture, event), true);
  }
}

function outline(context: CanvasRenderingContext2D, { picture, layout, scale }: Scene, event: number, colour: string, width: number): void {
  const placed = event >= 0 ? layout.lanes[layout.placeOfLane[laneOf(picture, event)]!] : undefined;
  if (!placed) return;
  const left = Math.max(xOf(scale, picture.rows.start[event]!), -4);
  const right = Math.min(xOf(scale, picture.rows.end[event]!), scale.width + 4);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.strokeRect(left - 0.5, placed.top - 0.5, Math.max(right - left, 2) + (right - left > 3 ? 0 : 1), placed.height);
}

function drawSpans(context: CanvasRenderingContext2D, { scale, height, colours, spans, measured }: Scene): void {
  context.fillStyle = colours.mark;
  for (const [start, end] of spans) {
    const left = xOf(scale, start);
    const width = Math.max(xOf(scale, end) - left, 1);
    if (left > scale.width || left + width < 0) continue;
    context.globalAlpha = 0.13;
    context.fillRect(left, RULER_HEIGHT, width, height);
    context.globalAlpha = 1;
    context.fillRect(left, RULER_HEIGHT - 3, Math.max(width, 2), 3);
  }
  if (!measured) return;
  const left = xOf(scale, Math.min(...measured));
  const right = xOf(scale, Math.max(...measured));
  context.globalAlpha = 0.2;
  context.fillStyle = colours.accent;
  context.fillRect(left, RULER_HEIGHT, right - left, height);
  context.globalAlpha = 1;
  context.fillStyle = colours.text;
  context.font = `600 ${FONT}`;
  context.textBaseline = "top";
  context.fillText(duration(Math.abs(measured[1] - measured[0])), left + 6, RULER_HEIGHT + 6);
}

function drawRuler(context: CanvasRenderingContext2D, { scale, zero, colours }: Scene, ticks: Ticks): void {
  context.fillStyle = colours.line;
  context.fillRect(0, RULER_HEIGHT - 1, scale.width, 1);
  context.font = FONT;
  context.textBaseline = "middle";
  for (const time of ticks.times) {
    const x = Math.round(xOf(scale, time + zero));
    context.fillStyle = colours.line;
    context.fillRect(x, 0, 1, RULER_HEIGHT);
    context.fillStyle = colours.muted;
    context.fillText(tickText(time, ticks.step), x + 4, RULER_HEIGHT / 2);
  }
}
