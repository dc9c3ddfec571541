/** The run as the page holds it: typed columns, and what is derived from them once. */

import type { Block } from "../decode";
import { Peaks } from "./peaks";
import { type Rows, rowsOf } from "./rows";

export const TrackKind = { STEPS: 0, QUEUE: 1, IDLE: 2, STREAM: 3, THREAD: 4, PYTHON: 5 } as const;

export interface Track {
  index: number;
  kind: number;
  label: string;
  device: number;
  /** Lanes from `firstLane` up to `lastLane`, by depth. */
  firstLane: number;
  lastLane: number;
}

export interface Lane {
  track: number;
  depth: number;
  first: number;
  last: number;
}

export interface Picture {
  strings: string[];
  tracks: Track[];
  lanes: Lane[];
  rows: Rows;
  name: Int32Array;
  place: Int32Array;
  detail: Int32Array;
  stack: Int32Array;
  /** The call that launched a device op, and the device ops of a call: `launched` from `launchedFirst[i]` on. */
  launch: Int32Array;
  launched: Int32Array;
  launchedFirst: Int32Array;
  frameParent: Int32Array;
  frameText: Int32Array;
  queueTime: Float64Array;
  queueDepth: Float64Array;
  queuePeaks: Peaks;
  window: [number, number];
  extent: [number, number];
  notes: string[];
}

export function pictureOf(block: Block): Picture {
  const int = (name: string) => new Int32Array(block.numbers(name));
  const start = block.numbers("event.start");
  const end = block.numbers("event.duration");
  for (let i = 0; i < end.length; i++) end[i]! += start[i]!;
  const launch = int("event.launch");
  const queueDepth = block.numbers("queue.depth");
  const lanes = lanesOf(int("lane.track"), int("lane.depth"), int("lane.first"), start.length);
  return {
    strings: block.strings,
    tracks: tracksOf(block, lanes),
    lanes,
    rows: rowsOf(start, end, new Uint8Array(block.numbers("event.kind"))),
    name: int("event.name"),
    place: int("event.place"),
    detail: int("event.detail"),
    stack: int("event.stack"),
    launch,
    ...launchedBy(launch),
    frameParent: int("frame.parent"),
    frameText: int("frame.text"),
    queueTime: block.numbers("queue.time"),
    queueDepth,
    queuePeaks: new Peaks(queueDepth),
    window: block.window,
    extent: extentOf(block.window, start, end),
    notes: block.notes,
  };
}

function lanesOf(track: Int32Array, depth: Int32Array, first: Int32Array, events: number): Lane[] {
  return Array.from(track, (_, i) => ({
    track: track[i]!,
    depth: depth[i]!,
    first: first[i]!,
    last: i + 1 < first.length ? first[i + 1]! : events,
  }));
}

function tracksOf(block: Block, lanes: Lane[]): Track[] {
  const kind = block.numbers("track.kind");
  const label = block.numbers("track.label");
  const device = block.numbers("track.device");
  const tracks = Array.from(kind, (_, index) => ({
    index,
    kind: kind[index]!,
    label: block.strings[label[index]!] ?? "",
    device: device[index]!,
    firstLane: 0,
    lastLane: 0,
  }));
  lanes.forEach((lane, i) => {
    const track = tracks[lane.track]!;
    if (track.lastLane === 0) track.firstLane = i;
    track.lastLane = i + 1;
  });
  return tracks;
}

/** Turns "which call launched this op" round, by counting. */
function launchedBy(launch: Int32Array): { launched: Int32Array; launchedFirst: Int32Array } {
  const launchedFirst = new Int32Array(launch.length + 1);
  for (const call of launch) if (call >= 0) launchedFirst[call + 1]!++;
  for (let i = 0; i < launch.length; i++) launchedFirst[i + 1]! += launchedFirst[i]!;
  const launched = new Int32Array(launchedFirst[launch.length]!);
  const next = launchedFirst.slice();
  launch.forEach((call, op) => {
    if (call >= 0) launched[next[call]!++] = op;
  });
  return { launched, launchedFirst };
}

function extentOf(window: [number, number], start: Float64Array, end: Float64Array): [number, number] {
  let [from, to] = window;
  for (let i = 0; i < start.length; i++) {
    if (start[i]! < from) from = start[i]!;
    if (end[i]! > to) to = end[i]!;
  }
  return [from, Math.max(to, from + 1)];
}

/** Where steps begin; where none were found, where the window does. */
export function stepStarts({ tracks, lanes, rows, window }: Picture): Float64Array {
  const track = tracks.find(({ kind, lastLane }) => kind === TrackKind.STEPS && lastLane > 0);
  if (!track) return Float64Array.of(window[0]);
  const { first, last } = lanes[track.firstLane]!;
  return rows.start.subarray(first, last);
}

export function callOf(picture: Picture, event: number): number {
  return picture.launch[event]!;
}

export function opsOf(picture: Picture, event: number): Int32Array {
  return picture.launched.subarray(picture.launchedFirst[event]!, picture.launchedFirst[event + 1]!);
}

export function laneOf(picture: Picture, event: number): number {
  let first = 0;
  let last = picture.lanes.length;
  while (last - first > 1) {
    const middle = (first + last) >>> 1;
    if (picture.lanes[middle]!.first <= event) first = middle;
    else last = middle;
  }
  return first;
}

/** Innermost frame first. */
export function stackOf(picture: Picture, event: number): string[] {
  const frames: string[] = [];
  for (let row = picture.stack[event]!; row >= 0; row = picture.frameParent[row]!) {
    frames.push(picture.strings[picture.frameText[row]!] ?? "");
  }
  return frames;
}
