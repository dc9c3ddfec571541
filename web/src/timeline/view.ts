/** The stretch of time in sight. */

export const NARROWEST_NS = 100;
const MARGIN = 0.02; // how far beyond the recording one may look, as a part of it
const GLIDE_MS = 180;

export class View {
  from: number;
  to: number;
  private glide: { from: number; to: number; target: [number, number]; begun: number } | null = null;
  /** The view that goes along with this one, and how much later its times are. */
  private along: { view: View; later: number } | null = null;
  private bounds: [number, number];

  constructor(
    private readonly extent: [number, number],
    window: [number, number],
    private readonly changed: () => void,
  ) {
    this.bounds = extent;
    this.from = window[0];
    this.to = Math.max(window[1], window[0] + NARROWEST_NS);
  }

  /** From now on both go together, and as far as either has something to show. */
  link(view: View, later: number): void {
    const [first, last] = this.extent;
    const [itsFirst, itsLast] = view.extent;
    this.bounds = [Math.min(first, itsFirst - later), Math.max(last, itsLast - later)];
    view.bounds = [this.bounds[0] + later, this.bounds[1] + later];
    this.along = { view, later };
    view.along = { view: this, later: -later };
  }

  unlink(): void {
    for (const view of [this, this.along?.view]) {
      if (!view) continue;
      view.along = null;
      view.bounds = view.extent;
    }
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
    if (this.along) this.along.view.glide = null;
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
    this.along?.view.follow(this.from + this.along.later, this.to + this.along.later);
  }

  private follow(from: number, to: number): void {
    this.glide = null;
    [this.from, this.to] = [from, to];
    this.changed();
  }

  private kept(from: number, to: number): [number, number] {
    const [first, last] = this.bounds;
    const margin = (last - first) * MARGIN;
    const span = Math.min(Math.max(to - from, NARROWEST_NS), last - first + 2 * margin);
    const middle = (from + to) / 2;
    const left = Math.min(Math.max(middle - span / 2, first - margin), last + margin - span);
    return [left, left + span];
  }
}
