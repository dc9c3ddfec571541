/** The whole run in a narrow strip, with a window on the part in sight. */

import type { Colours } from "../palette";
import { Painter } from "./paint";
import { type Picture, TrackKind } from "./picture";
import type { View } from "./view";

export const OVERVIEW_HEIGHT = 34;
const MOST_STREAMS = 3;

export class Overview {
  private readonly still = document.createElement("canvas");
  private stillIsOf = "";

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly picture: Picture,
    private readonly view: View,
  ) {
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.centre(event.offsetX);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) this.centre(event.offsetX);
    });
  }

  forget(): void {
    this.stillIsOf = "";
  }

  draw(colours: Colours, width: number, ratio: number): void {
    const size = `${width}×${ratio}`;
    if (size !== this.stillIsOf) {
      this.paint(colours, width, ratio);
      this.stillIsOf = size;
    }
    if (this.canvas.width !== this.still.width) this.canvas.width = this.still.width;
    if (this.canvas.height !== this.still.height) this.canvas.height = this.still.height;
    const context = this.canvas.getContext("2d")!;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.still, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [first, last] = this.picture.extent;
    const left = ((this.view.from - first) / (last - first)) * width;
    const right = ((this.view.to - first) / (last - first)) * width;
    context.fillStyle = colours.background;
    context.globalAlpha = 0.66;
    context.fillRect(0, 0, Math.max(left, 0), OVERVIEW_HEIGHT);
    context.fillRect(right, 0, Math.max(width - right, 0), OVERVIEW_HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.strokeRect(Math.max(left, 0) + 0.5, 0.5, Math.max(Math.min(right, width) - Math.max(left, 0), 3) - 1, OVERVIEW_HEIGHT - 1);
  }

  private paint(colours: Colours, width: number, ratio: number): void {
    this.still.width = width * ratio;
    this.still.height = OVERVIEW_HEIGHT * ratio;
    const context = this.still.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.background;
    context.fillRect(0, 0, width, OVERVIEW_HEIGHT);
    const lanes = this.lanes();
    const height = (OVERVIEW_HEIGHT - 4) / Math.max(lanes.length, 1);
    const [from, to] = this.picture.extent;
    const painter = new Painter(context, colours);
    lanes.forEach(({ first, last }, i) => {
      painter.lane(this.picture.rows, null, first, last, { from, to, width }, 2 + i * height, height + 0.5);
    });
    painter.flush(this.picture.rows, null, width);
  }

  /** Idle time and the busiest streams; without a device, the threads. */
  private lanes(): { first: number; last: number }[] {
    const { tracks, lanes } = this.picture;
    const lanesOf = (kind: number) => tracks.filter((track) => track.kind === kind && track.lastLane > track.firstLane).map((track) => lanes[track.firstLane]!);
    const streams = lanesOf(TrackKind.STREAM).sort((a, b) => b.last - b.first - (a.last - a.first));
    const chosen = [...lanesOf(TrackKind.IDLE).slice(0, 1), ...streams.slice(0, MOST_STREAMS)];
    return chosen.length ? chosen : lanesOf(TrackKind.THREAD).slice(0, MOST_STREAMS);
  }

  private centre(x: number): void {
    const [first, last] = this.picture.extent;
    const time = first + (x / this.canvas.clientWidth) * (last - first);
    const half = (this.view.to - this.view.from) / 2;
    this.view.set(time - half, time + half);
  }
}
