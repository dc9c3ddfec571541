/** The page's one tooltip. */

import { h, replaceChildren } from "./dom";

const AWAY = 14;

export class Tooltip {
  private readonly element = h("div", { class: "tooltip", role: "tooltip", id: "tooltip", hidden: true });

  constructor() {
    document.body.append(this.element);
  }

  /** `lines` stand below each other, the first one strong. `x` and `y` are the window's. */
  show(lines: string[], x: number, y: number): void {
    replaceChildren(this.element, ...lines.map((line, i) => h("div", { class: i ? "tooltip-line" : "tooltip-head" }, line)));
    this.element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = x + AWAY + width > innerWidth ? Math.max(x - AWAY - width, 4) : x + AWAY;
    const top = y + AWAY + height > innerHeight ? Math.max(y - AWAY - height, 4) : y + AWAY;
    this.element.style.transform = `translate(${left}px, ${top}px)`;
  }

  hide(): void {
    this.element.hidden = true;
  }

  /** Shows `lines` while the element is pointed at or focused. */
  attach(element: HTMLElement, lines: string[]): void {
    element.addEventListener("pointermove", (event) => this.show(lines, event.clientX, event.clientY));
    element.addEventListener("pointerleave", () => this.hide());
    element.addEventListener("focus", () => {
      const box = element.getBoundingClientRect();
      this.show(lines, box.left, box.bottom - AWAY);
    });
    element.addEventListener("blur", () => this.hide());
  }
}
