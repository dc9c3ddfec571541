/** One run's timeline: what of it is in sight, selected, found, and its canvases. */

import { h, replaceChildren } from "../dom";
import { type Colours, readColours } from "../palette";
import type { Tooltip } from "../tooltip";
import { tooltipOf } from "./describe";
import { drawScene, RULER_HEIGHT } from "./draw";
import { type Found, find, inOrderOfTime } from "./find";
import type { Drawn, Frames } from "./frames";
import { eventAt } from "./hit";
import { showLabels } from "./labels";
import { type Layout, layoutOf } from "./layout";
import { Overview } from "./overview";
import { callOf, laneOf, opsOf, type Picture } from "./picture";
import { listenToPointer } from "./pointer";
import type { Scale } from "./scan";
import { View } from "./view";

/** A run to draw; one that stands alone needs neither name nor note. */
export interface Run {
  picture: Picture;
  name: string;
  about: string;
}

/** What a timeline tells of itself, and what decides for it. */
export interface Surroundings {
  frames: Frames;
  tooltip: Tooltip;
  /** Whether keys and the wheel are meant for timelines, rather than for the page. */
  isActive(): boolean;
  touched(timeline: Timeline): void;
  selected(timeline: Timeline, event: number): void;
  pointed(timeline: Timeline, time: number | null): void;
  /** A stretch of time was chosen. */
  chose(timeline: Timeline, span: [number, number]): void;
  /** The height it needs is another. */
  grown(): void;
}

export class Timeline implements Drawn {
  readonly element: HTMLElement;
  readonly picture: Picture;
  readonly name: string;
  readonly view: View;
  readonly canvas: HTMLCanvasElement;
  /** Where the ruler counts from. */
  zero: number;
  /** A finding's instances. */
  spans: [number, number][] = [];
  /** The stretch of time that totals are of. */
  chosen: [number, number] | null = null;
  /** The time that is pointed at in the timeline beside this one. */
  pointed: number | null = null;
  private readonly labels = h("div", { class: "labels" });
  private readonly overview: Overview;
  private readonly closed = new Set<number>();
  private layout: Layout;
  private colours!: Colours;
  private width = 0;
  private height = 0;
  private scrollTop = 0;
  private event = -1;
  private hovered = -1;
  private found: Found | null = null;
  private match = -1;
  private measured: [number, number] | null = null;

  constructor(
    run: Run,
    private readonly around: Surroundings,
  ) {
    this.picture = run.picture;
    this.name = run.name;
    this.zero = run.picture.window[0];
    this.view = new View(run.picture.extent, run.picture.window, () => this.moved());
    this.layout = layoutOf(run.picture, this.closed);
    this.canvas = h("canvas", {
      class: "canvas",
      tabindex: 0,
      role: "application",
      "aria-label": `Timeline of host threads and device streams${run.name && `, ${run.name}`}. A and D or the arrow keys move, W and S zoom, question mark for all keys.`,
    });
    const strip = h("canvas", { class: "overview", "aria-hidden": "true" });
    this.overview = new Overview(strip, run.picture, this.view);
    this.element = h(
      "div",
      { class: "timeline" },
      run.name !== "" && h("div", { class: "run-name" }, h("b", {}, run.name), h("span", {}, run.about)),
      h("div", { class: "overview-row" }, h("div", { class: "corner" }, "whole run"), strip),
      h("div", { class: "board" }, h("div", { class: "label-clip" }, this.labels), this.canvas),
    );
    this.listen();
    this.relabel();
  }

  /** Takes the theme's colours anew. */
  recolour(): void {
    this.colours = readColours();
    this.overview.forget();
    this.redraw();
  }

  redraw(): void {
    this.around.frames.ask(this);
  }

  advance(now: number): boolean {
    return this.view.advance(now);
  }

  /** Marks what has the text; of the former matches none stays selected. Returns how many there are. */
  search(text: string): number {
    const former = this.matched;
    this.found = text ? find(this.picture, text) : null;
    this.match = -1;
    if (former >= 0 && former === this.event && !this.found?.events.includes(former)) this.select(-1);
    this.redraw();
    return this.matches;
  }

  get matches(): number {
    return this.found?.events.length ?? 0;
  }

  /** Goes to the next match in time; returns which it is, from 1 on, or 0 where there is none. */
  nextMatch(by: number): number {
    const count = this.matches;
    if (!count) return 0;
    this.match = this.match < 0 ? this.nearestMatch(by) : (this.match + by + count) % count;
    this.go(this.matched);
    return this.match + 1;
  }

  /** The event that is the current match, or -1. */
  private get matched(): number {
    return this.found && this.match >= 0 ? this.found.events[inOrderOfTime(this.found)[this.match]!]! : -1;
  }

  get selected(): number {
    return this.event;
  }

  /** Moves by parts of what is in sight; zooms about its middle. */
  move(part: number): void {
    const { from, to } = this.view;
    this.view.show(from + (to - from) * part, to + (to - from) * part);
  }

  zoomBy(factor: number): void {
    const { from, to } = this.view;
    const focus = this.hovered >= 0 || this.event < 0 ? (from + to) / 2 : this.middleOf(this.event);
    this.view.show(focus - (focus - from) * factor, focus + (to - focus) * factor);
  }

  scrollBy(pixels: number): void {
    const most = Math.max(this.layout.height - (this.height - RULER_HEIGHT), 0);
    this.scrollTop = Math.min(Math.max(this.scrollTop + pixels, 0), most);
    this.labels.style.transform = `translateY(${RULER_HEIGHT - this.scrollTop}px)`;
    this.redraw();
  }

  /** The event before or after the selected one in its lane. */
  neighbour(by: number): void {
    if (this.event < 0) return;
    const { first, last } = this.picture.lanes[laneOf(this.picture, this.event)]!;
    const next = this.event + by;
    if (next >= first && next < last) this.go(next);
  }

  /** From a launch to its op and back. */
  jump(): void {
    if (this.event < 0) return;
    const call = callOf(this.picture, this.event);
    const to = call >= 0 ? call : opsOf(this.picture, this.event)[0];
    if (to !== undefined) this.go(to);
  }

  zoomToSelected(): void {
    if (this.event >= 0) this.view.frame(this.picture.rows.start[this.event]!, this.picture.rows.end[this.event]!);
  }

  select(event: number): void {
    this.event = event;
    this.element.dataset["selected"] = event < 0 ? "" : String(event);
    this.around.selected(this, event);
    this.redraw();
  }

  /** Selects an event and brings it into sight, zooming in only when it would be too small to see. */
  go(event: number): void {
    this.select(event);
    const { start, end } = this.picture.rows;
    const duration = end[event]! - start[event]!;
    const { from, to } = this.view;
    const pixels = (duration / (to - from)) * this.width;
    if (pixels < 2) {
      const half = Math.max(duration, 500) * 40;
      this.view.show(this.middleOf(event) - half, this.middleOf(event) + half);
    } else if (end[event]! < from || start[event]! > to || pixels > this.width) {
      const half = Math.max((to - from) / 2, duration * 0.75);
      this.view.show(this.middleOf(event) - half, this.middleOf(event) + half);
    }
    const track = this.picture.lanes[laneOf(this.picture, event)]!.track;
    if (this.closed.delete(track)) this.relayout();
    const placed = this.layout.lanes[this.layout.placeOfLane[laneOf(this.picture, event)]!]!;
    const room = this.height - RULER_HEIGHT;
    if (placed.top < this.scrollTop) this.scrollBy(placed.top - this.scrollTop - 20);
    else if (placed.top + placed.height > this.scrollTop + room) this.scrollBy(placed.top + placed.height - this.scrollTop - room + 20);
  }

  /** How high the board is when all of it is shown. */
  get wholeHeight(): number {
    return this.layout.height + RULER_HEIGHT;
  }

  /** What stands above the board. */
  get headHeight(): number {
    return this.canvas.parentElement!.offsetTop - this.element.offsetTop;
  }

  resize(height: number, isExpanded: boolean): void {
    const board = this.canvas.parentElement!;
    this.width = Math.floor(board.clientWidth - this.labels.parentElement!.clientWidth);
    this.height = Math.floor(height);
    board.style.height = `${this.height}px`;
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.style.touchAction = isExpanded ? "none" : "pan-y";
    this.scrollBy(0);
  }

  draw(): void {
    if (!this.width) return;
    this.colours ??= readColours();
    const ratio = devicePixelRatio || 1;
    const context = this.canvas.getContext("2d", { alpha: false })!;
    if (this.canvas.width !== Math.round(this.width * ratio)) this.canvas.width = Math.round(this.width * ratio);
    if (this.canvas.height !== Math.round(this.height * ratio)) this.canvas.height = Math.round(this.height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { picture, layout, colours, scale, zero, height, scrollTop, event: selected, hovered, found, spans, measured, chosen, pointed } = this;
    const rectangles = drawScene(context, { picture, layout, colours, scale, zero, height, scrollTop, selected, hovered, found, spans, measured, chosen, pointed });
    this.overview.draw(colours, this.width, ratio);
    Object.assign(this.element.dataset, {
      from: String(scale.from),
      to: String(scale.to),
      zero: String(zero),
      rectangles: String(rectangles),
      lanes: String(layout.lanes.length),
    });
  }

  /** What was pointed at is elsewhere now. */
  private moved(): void {
    this.hover(-1, -1);
    this.redraw();
  }

  private middleOf(event: number): number {
    return (this.picture.rows.start[event]! + this.picture.rows.end[event]!) / 2;
  }

  private nearestMatch(by: number): number {
    const { rows } = this.found!;
    const byTime = inOrderOfTime(this.found!);
    const middle = (this.view.from + this.view.to) / 2;
    const after = byTime.findIndex((position) => rows.start[position]! >= middle);
    if (after < 0) return by > 0 ? 0 : byTime.length - 1;
    return by > 0 ? after : (after - 1 + byTime.length) % byTime.length;
  }

  private get scale(): Scale {
    return { from: this.view.from, to: this.view.to, width: this.width };
  }

  private listen(): void {
    this.element.addEventListener("pointerdown", () => this.around.touched(this));
    this.canvas.addEventListener("focus", () => this.around.touched(this));
    listenToPointer(this.canvas, {
      view: this.view,
      width: () => this.width,
      scrollBy: (pixels) => this.scrollBy(pixels),
      hover: (x, y) => this.hover(x, y),
      leave: () => this.hover(-1, -1),
      click: (x, y) => this.select(this.at(x, y)),
      doubleClick: () => this.zoomToSelected(),
      measure: (span) => {
        this.measured = span;
        this.redraw();
      },
      choose: (span) => this.around.chose(this, span),
      ownsWheel: () => this.around.isActive(),
    });
    this.labels.addEventListener("wheel", (event) => {
      if (!this.around.isActive()) return;
      event.preventDefault();
      this.scrollBy(event.deltaY);
    }, { passive: false });
  }

  private at(x: number, y: number): number {
    return y < RULER_HEIGHT ? -1 : eventAt(this.picture, this.layout, this.scale, x, y - RULER_HEIGHT + this.scrollTop);
  }

  private hover(x: number, y: number): void {
    const event = this.at(x, y);
    const { tooltip } = this.around;
    if (event >= 0) {
      const box = this.canvas.getBoundingClientRect();
      tooltip.show(tooltipOf(this.picture, event), box.left + x, box.top + y);
    } else tooltip.hide();
    this.around.pointed(this, x < 0 ? null : this.view.from + (x / this.width) * (this.view.to - this.view.from));
    if (event === this.hovered) return;
    this.hovered = event;
    this.canvas.style.cursor = event >= 0 ? "pointer" : "";
    this.redraw();
  }

  private toggle(track: number): void {
    if (!this.closed.delete(track)) this.closed.add(track);
    this.relayout();
  }

  private relayout(): void {
    this.layout = layoutOf(this.picture, this.closed);
    this.relabel();
    this.around.grown();
  }

  private relabel(): void {
    replaceChildren(this.labels);
    showLabels(this.labels, this.layout, (track) => this.toggle(track));
  }
}
