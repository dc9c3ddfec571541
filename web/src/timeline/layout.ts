/** Where tracks and their lanes lie, from top to bottom. */

import { type Picture, type Track, TrackKind } from "./picture";

const LANE_HEIGHT: Record<number, number> = {
  [TrackKind.STEPS]: 16,
  [TrackKind.QUEUE]: 40,
  [TrackKind.IDLE]: 16,
  [TrackKind.STREAM]: 22,
  [TrackKind.THREAD]: 17,
  [TrackKind.PYTHON]: 15,
};
const GAP = 7;
const CLOSED_HEIGHT = 16;

export interface PlacedTrack {
  track: Track;
  top: number;
  height: number;
  isOpen: boolean;
}

export interface PlacedLane {
  lane: number;
  top: number;
  height: number;
}

export interface Layout {
  tracks: PlacedTrack[];
  lanes: PlacedLane[];
  /** By lane; -1 for the lanes of closed tracks that are not shown. */
  placeOfLane: Int32Array;
  height: number;
}

/** A closed track shows its outermost lane only. */
export function layoutOf(picture: Picture, closed: ReadonlySet<number>): Layout {
  const layout: Layout = { tracks: [], lanes: [], placeOfLane: new Int32Array(picture.lanes.length).fill(-1), height: 4 };
  for (const track of picture.tracks) {
    const top = layout.height;
    const isOpen = !closed.has(track.index);
    const height = isOpen ? LANE_HEIGHT[track.kind]! : CLOSED_HEIGHT;
    const shown = isOpen ? track.lastLane : Math.min(track.firstLane + 1, track.lastLane);
    for (let lane = track.firstLane; lane < shown; lane++) {
      layout.placeOfLane[lane] = layout.lanes.length;
      layout.lanes.push({ lane, top: layout.height, height });
      layout.height += height;
    }
    if (layout.height === top) layout.height += height;
    layout.tracks.push({ track, top, height: layout.height - top, isOpen });
    layout.height += GAP;
  }
  return layout;
}

/** The index of the first placed lane whose bottom is below `top`. */
export function firstLaneBelow(layout: Layout, top: number): number {
  let first = 0;
  let last = layout.lanes.length;
  while (first < last) {
    const middle = (first + last) >>> 1;
    const lane = layout.lanes[middle]!;
    if (lane.top + lane.height <= top) first = middle + 1;
    else last = middle;
  }
  return first;
}
