/** The row above the timeline: search, the instances of a finding, and what to show. */

import { h, replaceChildren } from "../dom";

interface ToolbarActions {
  search(text: string): void;
  next(by: number): void;
  fit(): void;
  expand(): void;
  span(by: number): void;
  clearSpans(): void;
}

export class Toolbar {
  readonly element: HTMLElement;
  private readonly input: HTMLInputElement;
  private readonly matches = h("span", { class: "matches", "aria-live": "polite" });
  private readonly spans = h("div", { class: "spans", hidden: true });
  private readonly spanTitle = h("span", { class: "span-title" });
  private readonly spanCount = h("span", { class: "span-count", "aria-live": "polite" });
  private readonly expandButton: HTMLButtonElement;
  private count = 0;

  /** `lock` is what two timelines have besides. */
  constructor(actions: ToolbarActions, lock: HTMLElement | null) {
    this.input = h("input", {
      type: "search",
      placeholder: "Search names and lines",
      "aria-label": "Search the timeline's names and lines",
      title: "Search (/)",
      spellcheck: "false",
      input: () => actions.search(this.input.value),
      keydown: (event) => {
        const key = (event as KeyboardEvent).key;
        if (key === "Enter") actions.next((event as KeyboardEvent).shiftKey ? -1 : 1);
        if (key === "Escape") this.input.blur();
      },
    });
    this.expandButton = h("button", { click: () => actions.expand(), title: "Use the full window (e)", "aria-pressed": "false" }, "Full window");
    replaceChildren(
      this.spans,
      this.spanTitle,
      h("button", { click: () => actions.span(-1), "aria-label": "Previous instance" }, "‹"),
      this.spanCount,
      h("button", { click: () => actions.span(1), "aria-label": "Next instance" }, "›"),
      h("button", { click: () => actions.clearSpans(), "aria-label": "Hide the instances" }, "✕"),
    );
    this.element = h(
      "div",
      { class: "toolbar", role: "toolbar", "aria-label": "Timeline" },
      h("div", { class: "search" }, this.input, this.matches,
        h("button", { click: () => actions.next(-1), "aria-label": "Previous match", title: "Previous match (N)" }, "‹"),
        h("button", { click: () => actions.next(1), "aria-label": "Next match", title: "Next match (n)" }, "›"),
      ),
      this.spans,
      h("div", { class: "spacer" }),
      lock,
      h("button", { click: () => actions.fit(), title: "Fit the steps, then the whole run (f)" }, "Fit"),
      this.expandButton,
    );
  }

  focusSearch(): void {
    this.input.focus();
    this.input.select();
  }

  showMatches(text: string, matches: string): void {
    if (document.activeElement !== this.input) this.input.value = text;
    replaceChildren(this.matches, matches);
  }

  showSpans(title: string, count: number): void {
    this.count = count;
    this.spans.hidden = count === 0;
    replaceChildren(this.spanTitle, title);
  }

  showSpan(index: number): void {
    replaceChildren(this.spanCount, `${index + 1} of ${this.count}`);
  }

  showExpanded(isExpanded: boolean): void {
    this.expandButton.setAttribute("aria-pressed", String(isExpanded));
    replaceChildren(this.expandButton, isExpanded ? "Back to the page" : "Full window");
  }
}
