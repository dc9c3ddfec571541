/** Holds two timelines together, each at the start of the same step. */

import { h, replaceChildren } from "../dom";
import { grouped } from "../format";
import { stepStarts } from "./picture";
import type { Timeline } from "./timeline";

const AROUND = 0.015; // of a step: what is shown before and after it

export class Lock {
  readonly element: HTMLElement;
  private readonly button: HTMLButtonElement;
  private readonly of = h("span", { class: "step-of", "aria-live": "polite" });
  private readonly walk: HTMLElement;
  private readonly starts: [Float64Array, Float64Array];
  private readonly count: number;
  private step = 0;
  private isOn = false;

  /** `active` is the one that the other is brought to. */
  constructor(
    private readonly pair: readonly [Timeline, Timeline],
    private readonly active: () => Timeline,
  ) {
    this.starts = [stepStarts(pair[0].picture), stepStarts(pair[1].picture)];
    this.count = Math.min(this.starts[0].length, this.starts[1].length);
    this.button = h("button", { click: () => this.toggle() });
    this.walk = h(
      "span",
      { class: "walk" },
      h("button", { click: () => this.go(-1), "aria-label": "Previous step", title: "Previous step (,)" }, "‹"),
      this.of,
      h("button", { click: () => this.go(1), "aria-label": "Next step", title: "Next step (.)" }, "›"),
    );
    this.element = h("div", { class: "lock" }, this.button, this.walk);
    this.set(true);
  }

  get isLocked(): boolean {
    return this.isOn;
  }

  toggle(): void {
    if (!this.isOn) this.step = this.stepInSight();
    this.set(!this.isOn);
  }

  /** Shows the step before or after in both. */
  go(by: number): void {
    this.step = Math.min(Math.max(this.step + by, 0), this.count - 1);
    this.set(true);
    const [from, to] = this.aroundStep(this.active());
    this.active().view.show(from, to);
  }

  /** The step at which they are held, as long as the longer of the two takes. */
  aroundStep(timeline: Timeline): [number, number] {
    const start = this.startIn(timeline);
    const longest = Math.max(...this.pair.map(({ picture: { window } }, i) => (window[1] - window[0]) / this.starts[i]!.length));
    return [start - longest * AROUND, start + longest * (1 + AROUND)];
  }

  /** The same moment in the other one. */
  across(timeline: Timeline, time: number): number {
    return time - this.startIn(timeline) + this.startIn(this.other(timeline));
  }

  other(timeline: Timeline): Timeline {
    return this.pair[timeline === this.pair[0] ? 1 : 0];
  }

  private set(isOn: boolean): void {
    const one = this.active();
    const other = this.other(one);
    one.view.unlink();
    this.isOn = isOn;
    for (const timeline of this.pair) timeline.zero = isOn ? this.startIn(timeline) : timeline.picture.window[0];
    if (isOn) {
      one.view.link(other.view, this.startIn(other) - this.startIn(one));
      one.view.set(one.view.from, one.view.to);
    }
    this.button.setAttribute("aria-pressed", String(isOn));
    this.button.title = isOn ? "Each on its own (k)" : "Move and zoom both together, held at the start of a step (k)";
    replaceChildren(this.button, isOn ? "Locked" : "Apart");
    replaceChildren(this.of, `step ${grouped(this.step + 1)} of ${grouped(this.count)}`);
    this.walk.hidden = !isOn;
    for (const timeline of this.pair) timeline.redraw();
  }

  private startIn(timeline: Timeline): number {
    return this.starts[timeline === this.pair[0] ? 0 : 1]![this.step]!;
  }

  /** The last one to begin before the middle of what is in sight. */
  private stepInSight(): number {
    const { view } = this.active();
    const starts = this.starts[this.active() === this.pair[0] ? 0 : 1]!;
    const after = starts.findIndex((start) => start > (view.from + view.to) / 2);
    return Math.min(Math.max((after < 0 ? starts.length : after) - 1, 0), this.count - 1);
  }
}
