/** The timeline as a part of the page: its state, its elements, and what its parts do to each other. */

import { h, replaceChildren } from "../dom";
import { plural } from "../format";
import { type Colours, readColours } from "../palette";
import type { Tooltip } from "../tooltip";
import { callOf, laneOf, opsOf, type Picture } from "./picture";
import { showDetails } from "./details";
import { tooltipOf } from "./describe";
import { drawScene, RULER_HEIGHT } from "./draw";
import { type Found, find, inOrderOfTime } from "./find";
import { eventAt } from "./hit";
import { showLabels } from "./labels";
import { type Layout, layoutOf } from "./layout";
import { Overview, OVERVIEW_HEIGHT } from "./overview";
import { listenToPointer } from "./pointer";
import type { Scale } from "./scan";
import { Toolbar } from "./toolbar";
import { View } from "./view";

const SEARCH_AFTER_MS = 120;
const PAGE_PART = 0.62; // of the window's height, at most
const LEAST_HEIGHT = 260;

export class Timeline {
  readonly element: HTMLElement;
  readonly view: View;
  private readonly canvas = h("canvas", {
    class: "canvas",
    tabindex: 0,
    role: "application",
    "aria-label": "Timeline of host threads and device streams. A and D or the arrow keys move, W and S zoom, question mark for all keys.",
  });
  private readonly labels = h("div", { class: "labels" });
  private readonly details = h("div", { class: "details", role: "region", "aria-label": "Selected event", "aria-live": "polite", hidden: true });
  private readonly toolbar: Toolbar;
  private readonly overview: Overview;
  private readonly closed = new Set<number>();
  private layout: Layout;
  private colours!: Colours;
  private width = 0;
  private height = 0;
  private scrollTop = 0;
  private selected = -1;
  private hovered = -1;
  private found: Found | null = null;
  private match = -1;
  private spans: [number, number][] = [];
  private span = 0;
  private measured: [number, number] | null = null;
  private searchTimer = 0;
  private sought = "";
  private isDue = false;

  constructor(
    private readonly picture: Picture,
    private readonly tooltip: Tooltip,
  ) {
    this.view = new View(picture.extent, picture.window, () => this.moved());
    this.layout = layoutOf(picture, this.closed);
    this.toolbar = new Toolbar({
      search: (text) => this.searchSoon(text),
      next: (by) => this.nextMatch(by),
      fit: () => this.fit(),
      expand: () => this.expand(),
      span: (by) => this.showSpan(this.span + by),
      clearSpans: () => this.showSpans("", []),
    });
    const strip = h("canvas", { class: "overview", "aria-hidden": "true" });
    this.overview = new Overview(strip, picture, this.view);
    this.element = h(
      "div",
      { class: "timeline" },
      this.toolbar.element,
      h("div", { class: "overview-row" }, h("div", { class: "corner" }, "whole recording"), strip),
      h("div", { class: "board" }, h("div", { class: "label-clip" }, this.labels), this.canvas),
      this.details,
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
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame((now) => {
      this.isDue = false;
      const moves = this.view.advance(now);
      this.draw();
      if (moves) this.redraw();
    });
  }

  reveal(): void {
    this.element.scrollIntoView({ block: "nearest" });
  }

  /** Marks a finding's instances, in place of a search, and goes to the longest. */
  showSpans(title: string, spans: [number, number][]): void {
    if (spans.length) this.search("");
    this.spans = spans;
    this.toolbar.showSpans(title, spans.length);
    if (spans.length) {
      const lengths = spans.map(([start, end]) => end - start);
      this.showSpan(lengths.indexOf(Math.max(...lengths)));
      this.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
      this.canvas.focus({ preventScroll: true });
    }
    this.redraw();
  }

  /** Marks what has the text, in place of a finding's instances; of the former matches none stays selected. */
  search(text: string): void {
    clearTimeout(this.searchTimer);
    this.searchTimer = 0;
    if (text && this.spans.length) this.showSpans("", []);
    const former = this.matched;
    this.found = text ? find(this.picture, text) : null;
    this.match = -1;
    if (former >= 0 && former === this.selected && !this.found?.events.includes(former)) this.select(-1);
    this.toolbar.showMatches(text, this.found ? plural(this.found.events.length, "match", "matches") : "");
    this.redraw();
  }

  focusSearch(): void {
    this.toolbar.focusSearch();
  }

  nextMatch(by: number): void {
    if (this.searchTimer) this.search(this.sought);
    const count = this.found?.events.length ?? 0;
    if (!this.found || !count) return;
    this.match = this.match < 0 ? this.nearestMatch(by) : (this.match + by + count) % count;
    this.toolbar.showMatches(this.found.text, `${(this.match + 1).toLocaleString("en-US")} of ${count.toLocaleString("en-US")}`);
    this.go(this.matched);
  }

  /** The event that is the current match, or -1. */
  private get matched(): number {
    return this.found && this.match >= 0 ? this.found.events[inOrderOfTime(this.found)[this.match]!]! : -1;
  }

  /** The steps; when they are in sight already, the whole recording. */
  fit(): void {
    const [from, to] = this.picture.window;
    const isShown = Math.abs(this.view.from - from) + Math.abs(this.view.to - to) < (to - from) * 0.001;
    const [first, last] = isShown ? this.picture.extent : [from, to];
    this.view.show(first, last);
  }

  expand(): void {
    const isWide = this.element.classList.toggle("expanded");
    document.body.classList.toggle("behind", isWide);
    this.toolbar.showExpanded(isWide);
    this.resize();
    this.canvas.focus({ preventScroll: true });
  }

  get isExpanded(): boolean {
    return this.element.classList.contains("expanded");
  }

  /** Whether keys that the page needs itself, such as the arrows, are meant for the timeline. */
  get isActive(): boolean {
    return document.activeElement === this.canvas || this.isExpanded;
  }

  /** Lets go of one thing after the other: details, instances, search, the full window. */
  escape(): void {
    if (this.selected >= 0) this.select(-1);
    else if (this.spans.length) this.showSpans("", []);
    else if (this.found) this.search("");
    else if (this.isExpanded) this.expand();
  }

  /** Moves by parts of what is in sight; zooms about its middle. */
  move(part: number): void {
    const { from, to } = this.view;
    this.view.show(from + (to - from) * part, to + (to - from) * part);
  }

  zoomBy(factor: number): void {
    const { from, to } = this.view;
    const focus = this.hovered >= 0 || this.selected < 0 ? (from + to) / 2 : this.middleOf(this.selected);
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
    if (this.selected < 0) return;
    const { first, last } = this.picture.lanes[laneOf(this.picture, this.selected)]!;
    const next = this.selected + by;
    if (next >= first && next < last) this.go(next);
  }

  /** From a launch to its op and back. */
  jump(): void {
    if (this.selected < 0) return;
    const call = callOf(this.picture, this.selected);
    const to = call >= 0 ? call : opsOf(this.picture, this.selected)[0];
    if (to !== undefined) this.go(to);
  }

  zoomToSelected(): void {
    if (this.selected >= 0) this.view.frame(this.picture.rows.start[this.selected]!, this.picture.rows.end[this.selected]!);
  }

  /** What was pointed at is elsewhere now. */
  private moved(): void {
    this.hover(-1, -1);
    this.redraw();
  }

  private select(event: number): void {
    this.selected = event;
    showDetails(this.details, this.picture, event, {
      go: (to) => this.go(to),
      zoom: () => this.zoomToSelected(),
      search: (text) => this.search(text),
      close: () => this.select(-1),
    });
    this.element.dataset["selected"] = event < 0 ? "" : String(event);
    if (this.isExpanded) this.resize();
    this.redraw();
  }

  /** Selects an event and brings it into sight, zooming in only when it would be too small to see. */
  private go(event: number): void {
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

  private middleOf(event: number): number {
    return (this.picture.rows.start[event]! + this.picture.rows.end[event]!) / 2;
  }

  private showSpan(index: number): void {
    this.span = (index + this.spans.length) % this.spans.length;
    const [start, end] = this.spans[this.span]!;
    this.view.frame(start, end);
    this.toolbar.showSpan(this.span);
  }

  private searchSoon(text: string): void {
    clearTimeout(this.searchTimer);
    this.sought = text;
    this.searchTimer = setTimeout(() => this.search(text), SEARCH_AFTER_MS);
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

  private draw(): void {
    if (!this.width) return;
    this.colours ??= readColours();
    const ratio = devicePixelRatio || 1;
    const context = this.canvas.getContext("2d", { alpha: false })!;
    if (this.canvas.width !== Math.round(this.width * ratio)) this.canvas.width = Math.round(this.width * ratio);
    if (this.canvas.height !== Math.round(this.height * ratio)) this.canvas.height = Math.round(this.height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { picture, layout, colours, scale, height, scrollTop, selected, hovered, found, spans, measured } = this;
    const rectangles = drawScene(context, { picture, layout, colours, scale, height, scrollTop, selected, hovered, found, spans, measured });
    this.overview.draw(colours, this.width, ratio);
    Object.assign(this.element.dataset, {
      from: String(scale.from),
      to: String(scale.to),
      rectangles: String(rectangles),
      lanes: String(layout.lanes.length),
    });
  }

  private listen(): void {
    new ResizeObserver(() => this.resize()).observe(this.element);
    addEventListener("resize", () => this.resize());
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
      ownsWheel: () => this.isActive,
    });
    this.labels.addEventListener("wheel", (event) => {
      if (this.isActive) event.preventDefault();
      if (this.isActive) this.scrollBy(event.deltaY);
    }, { passive: false });
  }

  private at(x: number, y: number): number {
    return y < RULER_HEIGHT ? -1 : eventAt(this.picture, this.layout, this.scale, x, y - RULER_HEIGHT + this.scrollTop);
  }

  private hover(x: number, y: number): void {
    const event = this.at(x, y);
    if (event >= 0) {
      const box = this.canvas.getBoundingClientRect();
      this.tooltip.show(tooltipOf(this.picture, event), box.left + x, box.top + y);
    } else this.tooltip.hide();
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
    this.resize();
  }

  private relabel(): void {
    replaceChildren(this.labels);
    showLabels(this.labels, this.layout, (track) => this.toggle(track));
  }

  private resize(): void {
    const board = this.canvas.parentElement!;
    this.width = Math.floor(board.clientWidth - this.labels.parentElement!.clientWidth);
    const whole = this.layout.height + RULER_HEIGHT;
    const above = this.toolbar.element.offsetHeight + OVERVIEW_HEIGHT + this.details.offsetHeight;
    this.height = Math.floor(this.isExpanded ? Math.max(innerHeight - above - 8, 120) : Math.max(Math.min(whole, innerHeight * PAGE_PART), Math.min(whole, LEAST_HEIGHT)));
    board.style.height = `${this.height}px`;
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.style.touchAction = this.isExpanded ? "none" : "pan-y";
    this.scrollBy(0);
  }
}
