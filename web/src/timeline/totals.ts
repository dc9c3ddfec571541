/** What the device did in a stretch of time, by name and in all. */

import { type Picture, TrackKind } from "./picture";
import { firstVisible, lowerBound } from "./rows";

export interface OpTotal {
  name: string;
  count: number;
  /** Device time within the stretch; ops that run at once count each. */
  ns: number;
}

export interface Totals {
  /** The costliest first. */
  ops: OpTotal[];
  count: number;
  /** Of the stretch, as far as it lies within the steps: the time for which no device was at work. */
  idleNs: number;
  accountedNs: number;
}

export function totalsOf(picture: Picture, from: number, to: number): Totals {
  const { rows, lanes, name, strings } = picture;
  const byName = new Map<number, OpTotal>();
  let count = 0;
  forEachWithin(picture, TrackKind.STREAM, from, to, (event) => {
    let total = byName.get(name[event]!);
    if (!total) byName.set(name[event]!, (total = { name: strings[name[event]!] ?? "", count: 0, ns: 0 }));
    total.count++;
    total.ns += Math.min(rows.end[event]!, to) - Math.max(rows.start[event]!, from);
    count++;
  });
  const low = Math.max(from, picture.window[0]);
  const high = Math.min(to, picture.window[1]);
  let idleNs = 0;
  // Of several devices the first track is when none of them was at work.
  const idle = picture.tracks.find(({ kind }) => kind === TrackKind.IDLE);
  for (let lane = idle?.firstLane ?? 0; lane < (idle?.lastLane ?? 0); lane++) {
    const { first, last } = lanes[lane]!;
    const end = lowerBound(rows.start, high, first, last);
    for (let i = firstVisible(rows, low, first, last); i < end; i++) {
      idleNs += Math.max(Math.min(rows.end[i]!, high) - Math.max(rows.start[i]!, low), 0);
    }
  }
  const ops = [...byName.values()].sort((a, b) => b.ns - a.ns || a.name.localeCompare(b.name));
  return { ops, count, idleNs, accountedNs: Math.max(high - low, 0) };
}

function forEachWithin(picture: Picture, kind: number, from: number, to: number, act: (event: number) => void): void {
  const { rows, tracks, lanes } = picture;
  for (const track of tracks) {
    if (track.kind !== kind) continue;
    for (let lane = track.firstLane; lane < track.lastLane; lane++) {
      const { first, last } = lanes[lane]!;
      const end = lowerBound(rows.start, to, first, last);
      for (let i = firstVisible(rows, from, first, last); i < end; i++) if (rows.end[i]! > from) act(i);
    }
  }
}
