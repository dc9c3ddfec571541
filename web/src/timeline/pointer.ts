/** Mouse, wheel and touch on the timeline's canvas. */

import type { View } from "./view";

export interface PointerTarget {
  view: View;
  width(): number;
  scrollBy(pixels: number): void;
  hover(x: number, y: number): void;
  leave(): void;
  click(x: number, y: number): void;
  doubleClick(x: number, y: number): void;
  measure(span: [number, number] | null): void;
  /** A stretch of time was chosen. */
  choose(span: [number, number]): void;
  /** Whether the wheel zooms here, rather than scrolling the page past the timeline. */
  ownsWheel(): boolean;
}

const CLICK_WITHIN = 4; // pixels
const WHEEL_ZOOM = 0.0022; // per pixel of wheel
const PINCH_ZOOM = 0.011; // a trackpad's pinch comes as a wheel with Ctrl, and in small numbers
const PIXELS_A_LINE = 16;

export function listenToPointer(canvas: HTMLCanvasElement, target: PointerTarget): void {
  const { view } = target;
  const touching = new Map<number, { x: number; y: number }>();
  let pressed: { x: number; y: number; moved: boolean; measuresFrom: number | null } | null = null;

  const timeAt = (x: number) => view.from + (x / target.width()) * (view.to - view.from);

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    touching.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    pressed = { x: event.offsetX, y: event.offsetY, moved: touching.size > 1, measuresFrom: event.shiftKey ? timeAt(event.offsetX) : null };
  });

  canvas.addEventListener("pointermove", (event) => {
    const before = touching.get(event.pointerId);
    if (!before || !pressed) return target.hover(event.offsetX, event.offsetY);
    const now = { x: event.offsetX, y: event.offsetY };
    if (Math.hypot(now.x - pressed.x, now.y - pressed.y) > CLICK_WITHIN) pressed.moved = true;
    if (!pressed.moved) return;
    target.leave();
    const perPixel = (view.to - view.from) / target.width();
    if (pressed.measuresFrom !== null) target.measure([pressed.measuresFrom, timeAt(now.x)]);
    else if (touching.size === 1) {
      view.pan((before.x - now.x) * perPixel);
      if (event.pointerType !== "touch" || canvas.style.touchAction === "none") target.scrollBy(before.y - now.y);
    } else pinch(event.pointerId, before, now);
    touching.set(event.pointerId, now);
  });

  /** The times under the two fingers stay under them. */
  const pinch = (id: number, before: { x: number }, now: { x: number }) => {
    const other = [...touching].find(([key]) => key !== id)?.[1];
    if (!other || Math.abs(now.x - other.x) < 8) return;
    const held = timeAt(other.x);
    const grabbed = timeAt(before.x);
    const perPixel = (grabbed - held) / (now.x - other.x);
    if (perPixel > 0) view.set(held - other.x * perPixel, held + (target.width() - other.x) * perPixel);
  };

  const release = (event: PointerEvent) => {
    touching.delete(event.pointerId);
    if (!pressed || touching.size > 0) return;
    if (pressed.measuresFrom !== null && pressed.moved) {
      const until = timeAt(event.offsetX);
      target.measure(null);
      const span: [number, number] = [Math.min(pressed.measuresFrom, until), Math.max(pressed.measuresFrom, until)];
      target.choose(span);
      view.show(...span);
    } else if (!pressed.moved && event.type === "pointerup") target.click(event.offsetX, event.offsetY);
    pressed = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => target.leave());
  canvas.addEventListener("dblclick", (event) => target.doubleClick(event.offsetX, event.offsetY));

  canvas.addEventListener(
    "wheel",
    (event) => {
      const isPinch = event.ctrlKey || event.metaKey;
      if (!isPinch && !target.ownsWheel()) return;
      event.preventDefault();
      target.leave();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? PIXELS_A_LINE : 1;
      const across = (event.shiftKey ? event.deltaX || event.deltaY : event.deltaX) * lines;
      const along = event.shiftKey ? 0 : event.deltaY * lines;
      if (Math.abs(across) > Math.abs(along)) view.pan((across * (view.to - view.from)) / target.width());
      else view.zoom(Math.exp(along * (isPinch && Math.abs(along) < 40 ? PINCH_ZOOM : WHEEL_ZOOM)), timeAt(event.offsetX));
    },
    { passive: false },
  );
}
