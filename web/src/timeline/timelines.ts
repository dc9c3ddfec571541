/** One timeline, or two under each other, with what they share: search, details, the full window, a lock. */

import { h } from "../dom";
import { grouped, plural } from "../format";
import type { Tooltip } from "../tooltip";
import { showDetails } from "./details";
import { Frames } from "./frames";
import { Lock } from "./lock";
import { type Run, type Surroundings, Timeline } from "./timeline";
import { Toolbar } from "./toolbar";

const SEARCH_AFTER_MS = 120;
const PAGE_PART = 0.62; // of the window's height, at most
const PAGE_PART_OF_TWO = 0.74;
const LEAST_HEIGHT = 260;
const LEAST_EXPANDED = 120;

export class Timelines {
  readonly element: HTMLElement;
  private readonly all: Timeline[];
  private readonly toolbar: Toolbar;
  private readonly lock: Lock | null;
  private readonly details = h("div", { class: "details", role: "region", "aria-label": "Selected event", "aria-live": "polite", hidden: true });
  /** Called with the stretch of time that totals are wanted of; null for the steps. */
  chosen: (span: [number, number] | null) => void = () => undefined;
  private active: Timeline;
  private span = 0;
  private searchTimer = 0;
  private sought = "";

  constructor(runs: Run[], tooltip: Tooltip) {
    const around: Surroundings = {
      frames: new Frames(),
      tooltip,
      isActive: () => this.isActive,
      touched: (timeline) => (this.active = timeline),
      selected: (timeline, event) => this.showSelected(timeline, event),
      pointed: (timeline, time) => this.point(timeline, time),
      chose: (timeline, span) => {
        this.active = timeline;
        this.choose(span);
      },
      grown: () => this.resize(),
    };
    this.all = runs.map((run) => new Timeline(run, around));
    this.active = this.all[0]!;
    const [one, other] = this.all;
    this.lock = one && other ? new Lock([one, other], () => this.active) : null;
    if (this.lock) this.active.view.set(...this.lock.aroundStep(this.active));
    this.toolbar = new Toolbar(
      {
        search: (text) => this.searchSoon(text),
        next: (by) => this.nextMatch(by),
        fit: () => this.fit(),
        expand: () => this.expand(),
        span: (by) => this.showSpan(this.span + by),
        clearSpans: () => this.showSpans("", []),
      },
      this.lock?.element ?? null,
    );
    this.element = h("div", { class: "timelines" }, this.toolbar.element, ...this.all.map((timeline) => timeline.element), this.details);
    new ResizeObserver(() => this.resize()).observe(this.element);
    addEventListener("resize", () => this.resize());
  }

  /** What keys that concern a single timeline are meant for: the one used last. */
  get current(): Timeline {
    return this.active;
  }

  recolour(): void {
    for (const timeline of this.all) timeline.recolour();
  }

  reveal(): void {
    this.element.scrollIntoView({ block: "nearest" });
  }

  /** Marks a finding's instances, in place of a search, and goes to the longest. */
  showSpans(title: string, spans: [number, number][]): void {
    if (spans.length) this.search("");
    this.active.spans = spans;
    this.toolbar.showSpans(title, spans.length);
    if (spans.length) {
      const lengths = spans.map(([start, end]) => end - start);
      this.showSpan(lengths.indexOf(Math.max(...lengths)));
      this.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
      this.active.canvas.focus({ preventScroll: true });
    }
    this.active.redraw();
  }

  /** Chooses a stretch of time for totals, and marks it. */
  choose(span: [number, number] | null): void {
    for (const timeline of this.all) {
      timeline.chosen = timeline === this.active ? span : null;
      timeline.redraw();
    }
    this.chosen(span);
  }

  /** Marks what has the text, in place of a finding's instances. */
  search(text: string): void {
    clearTimeout(this.searchTimer);
    this.searchTimer = 0;
    if (text && this.active.spans.length) this.showSpans("", []);
    this.sought = text;
    const counts = this.all.map((timeline) => timeline.search(text));
    const [one = 0, other] = counts;
    const found = other === undefined ? plural(one, "match", "matches") : `${grouped(one)} + ${plural(other, "match", "matches")}`;
    this.toolbar.showMatches(text, text ? found : "");
  }

  focusSearch(): void {
    this.toolbar.focusSearch();
  }

  /** In the timeline used last, where it has any. */
  nextMatch(by: number): void {
    if (this.searchTimer) this.search(this.sought);
    const timeline = [this.active, ...this.all].find(({ matches }) => matches > 0);
    if (!timeline) return;
    const number = timeline.nextMatch(by);
    const of = this.all.length > 1 ? `${timeline.name}: ` : "";
    this.toolbar.showMatches(this.sought, `${of}${grouped(number)} of ${grouped(timeline.matches)}`);
  }

  /** The steps; when they are in sight already, the whole run. Of two that are locked the one step first. */
  fit(): void {
    for (const timeline of this.lock?.isLocked ? [this.active] : this.all) {
      const { view, picture } = timeline;
      const stops = this.stopsOf(timeline);
      const shown = stops.map(([from, to]) => Math.abs(view.from - from) + Math.abs(view.to - to) < (to - from) * 0.001).lastIndexOf(true);
      view.show(...(stops[shown + 1] ?? stops[0] ?? picture.extent));
    }
  }

  private stopsOf(timeline: Timeline): [number, number][] {
    const { window, extent } = timeline.picture;
    if (!this.lock?.isLocked) return [window, extent];
    const other = this.lock.other(timeline);
    const both = (own: [number, number], its: [number, number]): [number, number] => [
      Math.min(own[0], this.lock!.across(other, its[0])),
      Math.max(own[1], this.lock!.across(other, its[1])),
    ];
    return [this.lock.aroundStep(timeline), both(window, other.picture.window), both(extent, other.picture.extent)];
  }

  toggleLock(): void {
    this.lock?.toggle();
  }

  goToStep(by: number): void {
    this.lock?.go(by);
  }

  expand(): void {
    const isWide = this.element.classList.toggle("expanded");
    document.body.classList.toggle("behind", isWide);
    this.toolbar.showExpanded(isWide);
    this.resize();
    this.active.canvas.focus({ preventScroll: true });
  }

  /** Whether keys that the page needs itself, such as the arrows, are meant for the timelines. */
  get isActive(): boolean {
    return this.isExpanded || this.all.some(({ canvas }) => canvas === document.activeElement);
  }

  /** Lets go of one thing after the other: details, instances, search, the stretch, the full window. */
  escape(): void {
    const holding = this.all.find(({ selected }) => selected >= 0);
    if (holding) holding.select(-1);
    else if (this.active.spans.length) this.showSpans("", []);
    else if (this.sought) this.search("");
    else if (this.all.some(({ chosen }) => chosen)) this.choose(null);
    else if (this.isExpanded) this.expand();
  }

  private get isExpanded(): boolean {
    return this.element.classList.contains("expanded");
  }

  private showSpan(index: number): void {
    const { spans, view } = this.active;
    this.span = (index + spans.length) % spans.length;
    view.frame(...spans[this.span]!);
    this.toolbar.showSpan(this.span);
  }

  private searchSoon(text: string): void {
    clearTimeout(this.searchTimer);
    this.sought = text;
    this.searchTimer = setTimeout(() => this.search(text), SEARCH_AFTER_MS);
  }

  /** One event is selected at a time, in whichever timeline. */
  private showSelected(timeline: Timeline, event: number): void {
    if (event >= 0) {
      this.active = timeline;
      for (const other of this.all) if (other !== timeline && other.selected >= 0) other.select(-1);
    }
    showDetails(this.details, timeline.picture, timeline.name, event, {
      go: (to) => timeline.go(to),
      zoom: () => timeline.zoomToSelected(),
      search: (text) => this.search(text),
      close: () => timeline.select(-1),
    });
    if (this.isExpanded) this.resize();
  }

  private point(timeline: Timeline, time: number | null): void {
    const other = this.lock?.other(timeline);
    const across = other && this.lock!.isLocked && time !== null ? this.lock!.across(timeline, time) : null;
    if (!other || other.pointed === across) return;
    other.pointed = across;
    other.redraw();
  }

  private resize(): void {
    const wholes = this.all.map(({ wholeHeight }) => wholeHeight);
    const heads = this.all.reduce((sum, { headHeight }) => sum + headHeight, 0);
    const above = this.toolbar.element.offsetHeight + this.details.offsetHeight + heads + 8;
    const least = this.all.length * LEAST_HEIGHT;
    const part = this.all.length > 1 ? PAGE_PART_OF_TWO : PAGE_PART;
    const heights = this.isExpanded
      ? heightsIn(Math.max(innerHeight - above, this.all.length * LEAST_EXPANDED), wholes, true)
      : heightsIn(Math.max(innerHeight * part, least), wholes, false);
    this.all.forEach((timeline, i) => timeline.resize(heights[i]!, this.isExpanded));
  }
}

/** Parts as high as they need, where there is room: what the low ones leave goes to the others, or `fills` the rest. */
export function heightsIn(room: number, wholes: number[], fills: boolean): number[] {
  const share = room / wholes.length;
  const spare = wholes.reduce((sum, whole) => sum + Math.max(share - whole, 0), 0);
  const high = wholes.filter((whole) => whole >= share).length;
  if (!high && fills) return wholes.map(() => share);
  return wholes.map((whole) => (whole < share ? whole : Math.min(share + spare / high, fills ? room : whole)));
}
