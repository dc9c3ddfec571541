/** The stretch of time in sight. */

export const NARROWEST_NS = 100;
const MARGIN = 0.02; // how far beyond the recording one may look, as a part of it
const GLIDE_MS = 180;

export class View {
  from: number;
  to: number;
  private glide: { from: number; to: number; target: [number, number]; begun: number } | null = null;

  constructor(
    private readonly extent: [number, number],
    window: [number, number],
    private readonly changed: () => void,
  ) {
    this.from = window[0];
    this.to = Math.max(window[1], window[0] + NARROWEST_NS);
  }

  /** Both edges, kept within the recording and in order. */
  set(from: number, to: number): void {
    this.glide = null;
    this.place(from, to);
  }

  pan(by: number): void {
    this.set(this.from + by, this.to + by);
  }

  /** A factor below 1 shows less; what is at `time` stays where it is. */
  zoom(factor: number, time: number): void {
    this.set(time - (time - this.from) * factor, time + (this.to - time) * factor);
  }

  /** Moves there in a moment, or at once for those who want no motion. */
  show(from: number, to: number): void {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.set(from, to);
    this.glide = { from: this.from, to: this.to, target: this.kept(from, to), begun: performance.now() };
    this.changed();
  }

  /** Shows an interval with some of its surroundings. */
  frame(start: number, end: number): void {
    const around = Math.max((end - start) * 0.75, NARROWEST_NS);
    this.show(start - around, end + around);
  }

  /** Called once a frame; tells whether the view is still moving. */
  advance(now: number): boolean {
    const glide = this.glide;
    if (!glide) return false;
    const part = Math.min(Math.max((now - glide.begun) / GLIDE_MS, 0), 1);
    const eased = 1 - (1 - part) ** 3;
    const [from, to] = glide.target;
    this.place(glide.from + (from - glide.from) * eased, glide.to + (to - glide.to) * eased);
    if (part === 1) this.glide = null;
    return part < 1;
  }

  private place(from: number, to: number): void {
    [this.from, this.to] = this.kept(from, to);
    this.changed();
  }

  private kept(from: number, to: number): [number, number] {
    const [first, last] = this.extent;
    const margin = (last - first) * MARGIN;
    const span = Math.min(Math.max(to - from, NARROWEST_NS), last - first + 2 * margin);
    const middle = (from + to) / 2;
    const left = Math.min(Math.max(middle - span / 2, first - margin), last + margin - span);
    return [left, left + span];
  }
}
